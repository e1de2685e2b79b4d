"""What a program's file says about how it is run: nothing is executed to find out."""

import os
import re
import stat

LONGEST_LINE = 256
"""The kernel reads no more of a script's first line (``BINPRM_BUF_SIZE``)."""


def interpreter_words(path: str) -> list[str] | None:
    """The words behind ``#!``, as the kernel takes them apart: a program and at most one argument.

    ``None`` for what is no script, or cannot be read.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        head = os.read(fd, LONGEST_LINE) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
    except OSError:
        return None
    finally:
        os.close(fd)
    if not head.startswith(b"#!"):
        return None
    line = head[2:].split(b"\n", 1)[0].strip(b" \t")
    return [os.fsdecode(word) for word in re.split(rb"[ \t]+", line, maxsplit=1)] if line else []
