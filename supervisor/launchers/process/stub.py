"""The start gate: a tiny program that waits, and then becomes the engine.

It is given as source to a bare interpreter (``-I -S``), uses built-in modules alone, and gets all
that concerns the engine through its socket: so no environment of a launch can break it, no secret
shows in its arguments, and nothing of the engine is touched before the gate opens.

Down the socket, which it has as descriptor 0: a frame, then one byte that opens the gate; an end
of file instead, such as the daemon's death brings, ends it. Up the socket: one byte right before
the exec, then either a report of what failed, or an end of file, which proves the exec. Its own
exit codes (111 for a gate that closed, 112 for a failure) are told to nobody.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LENGTH_DIGITS = 10
OPEN = b"o"
TRYING = b"t"

SOURCE = r"""
import posix, _signal

def read(size):
    data = b""
    while len(data) < size:
        part = posix.read(link, size - len(data))
        if not part:
            posix._exit(111)
        data += part
    return data

def exists(path):
    try:
        posix.stat(path)
    except OSError:
        return 0
    return 1

def fail(step, error, path):
    posix.write(link, b"%s %d %d " % (step, error.errno or 0, exists(path)) + path)
    posix._exit(112)

def attempt(change, *values):
    try:
        change(*values)
    except OSError:
        pass

# The copy is closed by an exec, which is what proves it.
link = posix.dup(0)
null = posix.open("/dev/null", posix.O_RDWR)
posix.dup2(null, 0)

# What the daemon asked of the kernel for itself. Python ignores some signals, too.
for number in _signal.valid_signals():
    if number not in (_signal.SIGKILL, _signal.SIGSTOP, _signal.SIGPIPE):
        _signal.signal(number, _signal.SIG_DFL)
_signal.pthread_sigmask(_signal.SIG_SETMASK, ())
posix.umask(0o022)
if posix.sched_getscheduler(0) in (posix.SCHED_FIFO, posix.SCHED_RR):
    attempt(posix.sched_setscheduler, 0, posix.SCHED_OTHER, posix.sched_param(0))
if posix.getpriority(posix.PRIO_PROCESS, 0) < 0:
    attempt(posix.setpriority, posix.PRIO_PROCESS, 0, 0)
try:
    score = posix.open("/proc/self/oom_score_adj", posix.O_RDWR)
    if posix.read(score, 16).startswith(b"-"):
        posix.write(score, b"0")
    posix.close(score)
except OSError:
    pass

fields = read(int(read(10))).split(b"\0")
count = int(fields[0])
argv = fields[2:2 + count]
env = dict(field.split(b"=", 1) for field in fields[2 + count:])
places = [b""]
if b"/" not in argv[0]:
    places = [place + b"/" for place in env.get(b"PATH", b"/usr/bin:/bin").split(b":") if place]

read(1)
if fields[1]:
    try:
        posix.chdir(fields[1])
    except OSError as error:
        fail(b"chdir", error, fields[1])

# From here on the daemon's end may be gone, and the engine still starts: its record is written.
attempt(posix.write, link, b"t")
_signal.signal(_signal.SIGPIPE, _signal.SIG_DFL)
worst = FileNotFoundError(2, ""), argv[0]
for place in places:
    try:
        posix.execve(place + argv[0], argv, env)
    except (FileNotFoundError, NotADirectoryError) as error:
        if exists(place + argv[0]):
            worst = error, place + argv[0]
            break
    except PermissionError as error:
        worst = error, place + argv[0]
    except OSError as error:
        worst = error, place + argv[0]
        break
fail(b"exec", *worst)
"""


@dataclass(frozen=True, slots=True)
class Report:
    """What kept the stub from becoming the engine."""

    step: str
    """``chdir`` or ``exec``."""
    errno: int
    exists: bool
    """The path can be seen, so what is missing is something that it needs."""
    path: str


def frame(argv: Sequence[str], env: Mapping[str, str], workdir: str | None) -> bytes:
    """Raises ``ValueError`` for what no program can be given."""
    if not argv or not argv[0]:
        raise ValueError("no program is named")
    for key in env:
        if not key or "=" in key:
            raise ValueError(f"{key!r} cannot name an environment variable")
    variables = (f"{key}={value}" for key, value in env.items())
    fields = [str(len(argv)), workdir or "", *argv, *variables]
    if any("\0" in field for field in fields):
        raise ValueError("an argument, a variable or the working directory holds a NUL")
    body = b"\0".join(map(os.fsencode, fields))
    return b"%0*d" % (LENGTH_DIGITS, len(body)) + body


def parse_report(text: bytes) -> Report | None:
    """None for silence: an exec, or the stub's death."""
    if not text:
        return None
    step, errno, exists, path = text.split(b" ", 3)
    return Report(step.decode(), int(errno), exists == b"1", os.fsdecode(path))
