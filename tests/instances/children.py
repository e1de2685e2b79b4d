"""Bodies of tests that need another user or a mount of their own: they run in a forked child.

Root may read and write everything, so what a denied daemon does shows only under another uid; and
a full disk is a small tmpfs, mounted where nobody else can see it.
"""

import ctypes
import os
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

_NOBODY = 65_534
_CLONE_NEWNS = 0x20000


def run_child(body: Callable[[], None]) -> None:
    """Run ``body`` in a fork of this process, and fail with its traceback if it fails."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # Python warns of forking with threads around; the child touches none of theirs.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        status = 1
        try:
            body()
            status = 0
        except BaseException:
            os.write(writing, traceback.format_exc().encode()[-60_000:])
        finally:
            os._exit(status)
    os.close(writing)
    with open(reading, errors="replace") as pipe:
        told = pipe.read()
    _, status = os.waitpid(pid, 0)
    if os.waitstatus_to_exitcode(status):
        pytest.fail(f"in the child: {told}")


def as_nobody(body: Callable[[], None]) -> None:
    """Run ``body`` without root's rights; who has none runs it as it is."""
    if os.geteuid() != 0:
        return run_child(body)

    def demoted() -> None:
        os.setgroups([])
        os.setgid(_NOBODY)
        os.setuid(_NOBODY)
        body()

    return run_child(demoted)


def give_to_nobody(*paths: Path) -> None:
    if os.geteuid() == 0:
        for path in paths:
            os.chown(path, _NOBODY, _NOBODY)


def on_small_disk(folder: Path, size: str, body: Callable[[], None]) -> None:
    """Run ``body`` while ``folder`` is a file system of this size."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root on Linux")

    def mounted() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(_CLONE_NEWNS):
            raise OSError(ctypes.get_errno(), "unshare")
        for command in (
            ["mount", "--make-rprivate", "/"],
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)],
        ):
            subprocess.run(command, check=True)
        body()

    run_child(mounted)
