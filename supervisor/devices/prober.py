"""The daemon's side of the probe process: asks, waits a little, and lets go of it when it hangs.

A question that is not answered in time is not asked again; what was known before is handed out with
its age. After a longer while the process is killed, and a new one made. One that does not even die
(it is stuck in the kernel) is not followed by others: there is never more than one.
"""

import os
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from supervisor.contracts.device import ProbeState
from supervisor.devices.probe import ProbeAnswer, Question, Reply
from supervisor.devices.traces import EXPECTED

PATIENCE_S = 1.0
"""How long a round waits for an answer, its process's first one apart."""
FIRST_PATIENCE_S = 15.0
"""Opening a driver attaches to every GPU in turn, a second each where nothing keeps them awake."""
ABANDON_S = 30.0
"""A process that owes an answer for so long is ended."""
RETRY_S = 5.0
"""Between one failure of a driver and the next attempt at it."""
RENEW_S = 60.0
"""A process that sees a lost device is made anew so often: a library looks for devices once."""
DEATH_S = 0.5
CLOSE_S = 2.0
"""For a round to notice that the daemon leaves; one that hangs does not."""
_SLICE_S = 0.25
"""Between two looks whether the daemon leaves."""
_ROOT = str(Path(__file__).parents[2])
_PROGRAM = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from supervisor.devices.child import main; main(sys.argv[2:])"
)
COMMAND = (sys.executable, "-P", "-c", _PROGRAM, _ROOT)
"""Found where this file is, whatever folder the daemon was started in."""


@dataclass(frozen=True, slots=True)
class Held:
    """What is known from one vendor."""

    answer: ProbeAnswer
    state: ProbeState
    age_s: float
    """0 where it was answered in this round."""


@dataclass(slots=True)
class _Vendor:
    answer: ProbeAnswer | None = None
    answered_at: float = 0.0
    asked_at: float | None = None
    """When a question was put that is not answered yet."""
    retry_at: float = 0.0
    trouble: str | None = None


class Prober:
    """Rounds follow one another; ``close`` may come at any time. All of it blocks."""

    def __init__(
        self,
        command: Sequence[str] = COMMAND,
        *,
        env: Mapping[str, str] | None = None,
        root: Path | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """``root`` is where a made-up host's files are, below which all is looked for."""
        self._command = (*command, str(root)) if root else tuple(command)
        self._env = None if env is None else dict(env)
        self._now = now
        self._child: subprocess.Popen[bytes] | None = None
        self._stuck: subprocess.Popen[bytes] | None = None
        self._pending = b""
        self._vendors: dict[str, _Vendor] = {}
        self._worn = False
        self._began = 0.0
        self._closed = False
        self._turn = threading.Lock()

    def ask(self, vendors: Iterable[str]) -> dict[str, Held]:
        """One round. Waits no longer than the patience that the vendors' history asks for."""
        with self._turn:
            return self._round(vendors)

    def _round(self, vendors: Iterable[str]) -> dict[str, Held]:
        known = {name: self._vendors.setdefault(name, _Vendor()) for name in vendors}
        began = self._now()
        self._abandon_if_late()
        due = [name for name, it in known.items() if it.asked_at is None and it.retry_at <= began]
        if due and self._started(due):
            self._put(due)
        fresh = [known[name] for name in due if known[name].asked_at is not None]
        first = any(it.answer is None and it.trouble is None for it in fresh)
        self._collect(fresh, began + (FIRST_PATIENCE_S if first else PATIENCE_S))
        self._abandon_if_late()
        if self._worn:
            self._end()  # a library that was loaded before its driver changed never recovers
        return {name: self._held(name, began) for name in known}

    def close(self) -> None:
        """End the process. A round that is waiting for it comes back at once.

        One that hangs in the kernel is not waited for: its process loses its input with us.
        """
        self._closed = True
        if self._child is not None:
            self._child.kill()
        if self._turn.acquire(timeout=CLOSE_S):
            try:
                self._end()
            finally:
                self._turn.release()

    # ── the process ──────────────────────────────────────────────────────────

    def _started(self, due: Iterable[str]) -> bool:
        """Whether there is a process to ask; if none can be made, that is the vendors' trouble."""
        if self._stuck is not None and self._stuck.poll() is not None:
            self._stuck = None
        if self._child is not None and self._child.poll() is not None:
            self._forget("it ended")
        if self._child is None and self._stuck is None and not self._closed:
            try:
                self._child = subprocess.Popen(
                    self._command,
                    env=self._env,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    cwd="/",
                )
            except OSError as error:
                for name in due:
                    self._vendors[name].trouble = f"no probe process can be started: {error}"
                    self._vendors[name].retry_at = self._now() + RETRY_S
                return False
            self._pending, self._worn, self._began = b"", False, self._now()
            assert self._child.stdout is not None
            os.set_blocking(self._child.stdout.fileno(), False)
        return self._child is not None

    def _put(self, vendors: list[str]) -> None:
        assert self._child is not None
        assert self._child.stdin is not None
        try:
            os.write(
                self._child.stdin.fileno(),
                msgspec.json.encode(Question(ask=tuple(vendors))) + b"\n",
            )
        except OSError:  # it left this very moment, for nobody had asked in a while
            self._end()
            return
        for name in vendors:
            self._vendors[name].asked_at = self._now()

    def _collect(self, awaited: list[_Vendor], until: float) -> None:
        """Take what has come, and wait for those that were just asked."""
        if self._child is None or self._child.stdout is None:
            return
        with selectors.DefaultSelector() as selector:
            selector.register(self._child.stdout, selectors.EVENT_READ)
            while True:
                waiting = any(it.asked_at is not None for it in awaited) and not self._closed
                left = max(0.0, until - self._now()) if waiting else 0.0
                if not selector.select(min(left, _SLICE_S)):
                    if left:
                        continue
                    return
                chunk = os.read(self._child.stdout.fileno(), 1 << 20)
                if not chunk:
                    break
                *lines, self._pending = (self._pending + chunk).split(b"\n")
                try:
                    for line in lines:
                        self._take(msgspec.json.decode(line, type=Reply))
                except (msgspec.DecodeError, KeyError):
                    self._end(f"the probe process wrote {lines[0][:80]!r}")
                    return
        self._end("the probe process died")

    def _take(self, reply: Reply) -> None:
        vendor = self._vendors[reply.probe]
        vendor.asked_at, vendor.trouble = None, None
        stale = bool(reply.answer.lost) and self._now() - self._began > RENEW_S
        self._worn = self._worn or stale or reply.answer.state == "failed"
        if reply.answer.state == "failed" and vendor.answer and vendor.answer.accelerators:
            # Its devices did not go away because they cannot be asked about.
            vendor.trouble = reply.answer.reason or "it failed"
            vendor.retry_at = self._now() + RETRY_S
            return
        vendor.answer, vendor.answered_at = reply.answer, self._now()
        if reply.answer.state != "ok":
            vendor.retry_at = vendor.answered_at + RETRY_S

    def _abandon_if_late(self) -> None:
        asked = [it.asked_at for it in self._vendors.values() if it.asked_at is not None]
        if asked and self._now() - min(asked) > ABANDON_S:
            self._end(f"it did not answer within {ABANDON_S:g} s and was given up")

    def _end(self, trouble: str | None = None) -> None:
        """Kill the process, and do not wait long: one in the kernel's hands does not die."""
        child = self._child
        if child is None:
            return
        child.kill()
        try:
            child.wait(DEATH_S)
        except subprocess.TimeoutExpired:
            self._stuck = child
            trouble = f"{trouble}; its process ({child.pid}) is stuck in the kernel"
        self._forget(trouble)

    def _forget(self, trouble: str | None) -> None:
        child, self._child = self._child, None
        assert child is not None
        for stream in (child.stdin, child.stdout):
            if stream is not None:
                stream.close()
        for vendor in self._vendors.values():
            if vendor.asked_at is not None:
                vendor.asked_at = None
                vendor.trouble = trouble
                vendor.retry_at = self._now() + RETRY_S

    # ── what is known ────────────────────────────────────────────────────────

    def _held(self, name: str, began: float) -> Held:
        now, vendor = self._now(), self._vendors[name]
        trouble = vendor.trouble
        if trouble is None and vendor.asked_at is not None:
            trouble = f"no answer for {now - vendor.asked_at:.0f} s"
        if trouble is None and self._stuck is not None:
            trouble = f"its process ({self._stuck.pid}) is stuck in the kernel"
        if vendor.answer is None:
            reason = trouble or "it could not be asked"
            expects = EXPECTED.get(name, UNSET)
            return Held(ProbeAnswer(state="failed", reason=reason, expects=expects), "failed", 0.0)
        if trouble is not None:
            answer = replace(vendor.answer, reason=trouble)
            return Held(answer, "stale", now - vendor.answered_at)
        age = 0.0 if vendor.answered_at >= began else now - vendor.answered_at
        return Held(vendor.answer, vendor.answer.state, age)
