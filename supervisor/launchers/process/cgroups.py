"""Where instances get their cgroups: one directory that is ours, if all that it takes works there.

Below it lies ``NAME-NONCE-PID`` for each start of an engine. The name alone says whose it is, and
the directory being there at all that we made it. An attempt of the same launch gets another one,
so nothing that an earlier one left behind can be taken for a part of it.
"""

import os
import subprocess
import threading
import time
from collections.abc import Callable, Container
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL

import anyio
import structlog
from anyio import to_thread

from supervisor.launchers.base import Stray
from supervisor.launchers.process.cgroup import Cgroup
from supervisor.launchers.process.spawner import interpreter
from supervisor.patience import AllHung, Overdue, Patience

NONCE_LETTERS = 12
DEADLINE_S = 5.0
"""What any of this may take; it takes milliseconds, but for a kernel that is in trouble."""
LAST_GASP_S = 0.2
"""How long a stub takes to see that its daemon is gone."""

_joining = Patience("making cgroups", 8)

log = structlog.get_logger(__name__)


class Cgroups:
    """``root`` is None where none may be made, for the reason ``why``."""

    def __init__(self, root: Path | None, why: str = "there is none that is ours to make") -> None:
        self._root = root
        self._why = why
        self._works: bool | None = None
        self._trying = anyio.Lock()

    @property
    def place(self) -> str | None:
        """Where they are made; None where none can be, as far as that was found out."""
        return None if self._root is None or self._works is False else str(self._root)

    async def probe(self) -> bool:
        """Whether they work, found out by doing it, once. Says in the log what came of it."""
        async with self._trying:
            if self._works is None:
                problem = self._why
                if self._root is not None:
                    problem = await to_thread.run_sync(_try_out, self._root)
                self._works = not problem
                if problem:
                    log.info("engines get no cgroup and are known by other signs", why=problem)
                else:
                    log.info("each engine gets a cgroup", below=str(self._root))
            return self._works

    async def enter(self, pid: int, name: str, nonce: str) -> Cgroup | None:
        """A new cgroup with this process in it, which is a child of ours that nobody has reaped.

        None where that does not work: the launch goes on without. Where it takes too long it may
        still come to pass, and the record has to name the place that the engine then is in.
        """
        if self._root is None:
            return None
        # A cancel in the middle of it would leave the process inside and nobody to know of it.
        with anyio.CancelScope(shield=True):
            if not await self.probe():
                return None
            cgroup = Cgroup(self._root / f"{name}-{nonce[:NONCE_LETTERS]}-{pid}")
            late = threading.Event()
            try:
                problem = await _joining.run(_enter, cgroup, pid, late.is_set, within_s=DEADLINE_S)
            except AllHung as error:
                problem = str(error)
            except Overdue as error:
                late.set()
                log.warning("an engine may get no cgroup", instance=name, why=str(error))
                return cgroup
            if not problem:
                return cgroup
        log.warning("an engine gets no cgroup", instance=name, why=problem)
        return None

    def recorded(self, path: str | None, nonce: str, pid: int) -> Cgroup | None:
        """A place that a record names, if it is one that we made for this very start.

        Everybody inside a cgroup of ours is ended with its engine, so no other path may pass.
        """
        place = Path(path) if path else None
        if place is None or not place.name.endswith(f"-{nonce[:NONCE_LETTERS]}-{pid}"):
            return None
        if self._root is not None and place.parent != self._root:
            return None
        return Cgroup(place)

    def of(self, name: str, nonce: str | None) -> tuple[Cgroup, ...]:
        """All of an instance: of one launch of it, or of any where the nonce is not known."""
        wanted = None if nonce is None else nonce[:NONCE_LETTERS]
        return tuple(
            cgroup
            for cgroup in self._all()
            if (marks := marks_of(cgroup)) and marks[0] == name and wanted in (None, marks[1])
        )

    async def strays(self, known: Container[str]) -> tuple[Stray, ...]:
        """Those that somebody lives in and no record names. Empty ones are removed.

        To be asked before any engine is started.
        """
        found: list[Stray] = []

        async def judge(cgroup: Cgroup) -> None:
            with suppress(OSError):
                if await cgroup.emptied(LAST_GASP_S):
                    await cgroup.dispose()
                    return
            if marks := marks_of(cgroup):
                found.append(
                    Stray(name=marks[0], place=str(cgroup), nonce=marks[1], runtime="process")
                )

        async with anyio.create_task_group() as judging:
            for cgroup in await to_thread.run_sync(self._all):
                if str(cgroup) not in known:
                    judging.start_soon(judge, cgroup)
        return tuple(sorted(found, key=lambda stray: stray.place))

    def leave(self) -> None:
        """At the daemon's end: nothing of ours stays unless an engine does."""
        if self._root is not None:
            with suppress(OSError):
                self._root.rmdir()

    def _all(self) -> list[Cgroup]:
        if self._root is None:
            return []
        try:
            with os.scandir(self._root) as entries:
                return [Cgroup(Path(entry)) for entry in entries if entry.is_dir()]
        except OSError:
            return []


def marks_of(cgroup: Cgroup) -> tuple[str, str] | None:
    """The name, and the beginning of the nonce, of the launch that a cgroup was made for."""
    name, _, rest = cgroup.path.name.rpartition("-")
    name, _, nonce = name.rpartition("-")
    return (name, nonce) if name and nonce and rest.isdecimal() else None


def _make(folder: Path) -> None:
    """And the one above, which goes with the last one in it: perhaps just now."""
    with suppress(FileNotFoundError):
        return folder.mkdir(parents=True, exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)


def _enter(cgroup: Cgroup, pid: int, late: Callable[[], bool] = lambda: False) -> str:
    """What went wrong, or nothing. Nobody is put into it ``late``, unless that hangs itself."""
    try:
        _make(cgroup.path)
        if cgroup.populated():
            return f"{cgroup} is taken"
        if late():
            cgroup.remove()
            return "it took too long"
        cgroup.join(pid)
    except OSError as error:
        cgroup.remove()
        return f"{cgroup}: {error.strerror}"
    return ""


def _try_out(root: Path) -> str:
    """What does not work, or nothing: make one, put a process into it, end it, remove it."""
    cgroup = Cgroup(root / f"probe-{os.getpid()}")
    argv = [interpreter(), "-I", "-S", "-c", "import sys; sys.stdin.read()"]
    try:
        # It ends with us, too: nobody else has the other end of its input.
        with subprocess.Popen(argv, stdin=subprocess.PIPE, env={}, cwd="/") as child:
            try:
                return _enter(cgroup, child.pid) or _end(cgroup, child)
            finally:
                child.kill()
    except OSError as error:
        return f"{error.filename or 'the probe'}: {error.strerror}"
    finally:
        cgroup.remove()


def _end(cgroup: Cgroup, child: "subprocess.Popen[bytes]") -> str:
    if not cgroup.populated():
        return "a process that was put into it is not there"
    if not cgroup.kill():
        return "it cannot be killed as a whole (Linux 5.14 and newer can)"
    try:
        if child.wait(DEADLINE_S) != -SIGKILL:
            return "its process ended in another way than it was told to"
    except subprocess.TimeoutExpired:
        return "its process does not end"
    for _ in range(100):
        if not cgroup.populated():
            return ""
        time.sleep(0.01)
    return "it does not say that it is empty"
