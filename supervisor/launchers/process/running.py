"""An engine that runs, or that a record says runs."""

import os
from collections.abc import Callable

import anyio

from supervisor.contracts.engine import StopStyle
from supervisor.contracts.event import MemberProcess
from supervisor.contracts.instance import Liveness, Ownership, ProcessHandle
from supervisor.launchers.base import (
    CannotTellError,
    Exit,
    NotOursError,
    Running,
    StopReceipt,
)
from supervisor.launchers.grace import Grace
from supervisor.launchers.process.census import CensusTaker, ScanFailedError
from supervisor.launchers.process.cgroup import Cgroup
from supervisor.launchers.process.identity import Verdict, examine, start_of
from supervisor.launchers.process.pidfd import ExitWatch
from supervisor.launchers.process.stop import Stop
from supervisor.launchers.process.tree import Tree, describe

RECHECK_S = 1.0
"""The pace at which a process that could not be judged is judged again."""

_OPEN = frozenset({Verdict.NOT_OURS, Verdict.CANNOT_TELL})
"""Verdicts that can still change, at the latest when that process ends."""


class ProcessRunning(Running):
    """``watch`` is given with the verdict ``OURS``, and its pidfd then is the proof for good."""

    ref: ProcessHandle

    def __init__(
        self,
        ref: ProcessHandle,
        nonce: str,
        cgroup: Cgroup | None,
        *,
        boot_id: str,
        census: CensusTaker,
        patience_s: float,
        verdict: Verdict,
        watch: ExitWatch | None,
        on_close: Callable[[], None],
        log_path: str | None = None,
    ) -> None:
        self.ref = ref
        self._nonce = nonce
        self._cgroup = cgroup
        self._boot_id = boot_id
        self._patience_s = patience_s
        self._verdict = verdict
        self._watch = watch
        self._tree = plant(ref, nonce, boot_id, census, watch, cgroup)
        if self._tree:
            self._tree.log_path = log_path
        self._on_close = on_close
        self._stopping = anyio.Lock()
        self._grace = Grace()
        self._asked = set[tuple[int, int]]()
        self._closed = False

    async def wait_exit(self) -> Exit:
        while await self._judged() in _OPEN:  # noqa: ASYNC110 - nothing would set an event
            await anyio.sleep(RECHECK_S)
        return await self._watch.wait() if self._watch else Exit(None, None)

    async def liveness(self) -> Liveness:
        if await self._judged() in _OPEN:
            return "unknown"
        if self._watch and self._watch.alive():
            return "alive"
        if self._tree is None:
            return "gone"
        try:
            if self._tree.populated or (seen := await self._tree.look()).members:
                return "leaderGone"
        except ScanFailedError:
            return "unknown"
        if seen.doubtful:
            return "unknown"
        await self._tree.clear_away()
        return "gone"

    async def members(self) -> tuple[MemberProcess, ...]:
        """Empty for a handle that cannot be judged. Raises ``CannotTellError``."""
        if await self._judged() in _OPEN or self._tree is None:
            return ()
        try:
            return describe((await self._tree.look()).members)
        except ScanFailedError:
            raise CannotTellError("the processes of this host cannot be read") from None

    async def owns_socket(self, inode: int) -> Ownership:
        if await self._judged() in _OPEN:
            return "unknown"
        if self._tree is None:
            return "foreign"
        try:
            return await self._tree.owns_socket(inode)
        except ScanFailedError:
            return "unknown"

    async def owns_cgroup(self, inode: int) -> Ownership:
        if await self._judged() in _OPEN or self._tree is None:
            return "unknown"
        try:
            return await self._tree.owns_cgroup(inode)
        except ScanFailedError:
            return "unknown"

    async def stop(self, style: StopStyle, grace_ms: int) -> StopReceipt:
        try:
            return await self._end(style, grace_ms / 1000)
        finally:
            self._grace.forget()

    def hasten(self, grace_ms: int) -> None:
        self._grace.hasten(grace_ms)

    async def _end(self, style: StopStyle, grace_s: float) -> StopReceipt:
        match await self._judged():
            case Verdict.NOT_OURS:
                raise NotOursError(f"process {self.ref.pid} says that another launch started it")
            case Verdict.CANNOT_TELL:
                raise CannotTellError(f"nothing proves that process {self.ref.pid} is ours")
        if self._tree is None:
            return StopReceipt(exit=None)
        # A second caller finds the work done; two TERMs at once mean something else to engines.
        async with self._stopping:
            stop = Stop(self._tree, self._grace, asked=self._asked)
            receipt = await stop.run(style, grace_s, self._patience_s)
            if not receipt.survivors:
                await self._tree.clear_away()
            return receipt

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._on_close()
        if self._watch:
            self._watch.close()

    async def _judged(self) -> Verdict:
        """The verdict, reached anew while it is open."""
        if self._closed:
            raise anyio.ClosedResourceError
        if self._verdict in _OPEN:
            self._accept(*await examine(self.ref, self._nonce, self._boot_id, self._cgroup))
        return self._verdict

    def _accept(self, verdict: Verdict, pidfd: int | None) -> None:
        if not self._closed and self._verdict in _OPEN:
            self._verdict = verdict
            self._watch = watch_if_ours(verdict, pidfd)
            if self._tree:
                self._tree.watch = self._watch
        elif pidfd is not None:
            # Another task was faster.
            os.close(pidfd)


def watch_if_ours(verdict: Verdict, pidfd: int | None) -> ExitWatch | None:
    """Takes the pidfd over, and closes it where there is nothing to watch."""
    if pidfd is None:
        return None
    if verdict is Verdict.OURS:
        return ExitWatch(pidfd)
    os.close(pidfd)
    return None


def plant(
    ref: ProcessHandle,
    nonce: str,
    boot_id: str,
    census: CensusTaker,
    watch: ExitWatch | None,
    cgroup: Cgroup | None,
) -> Tree | None:
    """The tree that a handle can have on this boot, if any.

    Without a token it is the tree of a main process that can never be found, known by nonce alone;
    and so is one whose record names process 1, which is never a member.
    """
    boot, start = start_of(ref) or (boot_id, 0)
    if ref.pid < 1 or ref.pid == os.getpid() or boot != boot_id:
        return None
    return Tree(census, ref.pid, start, nonce, watch, cgroup)
