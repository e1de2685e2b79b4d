"""What a launcher is. One is chosen by the ``kind`` of a plan, or of a record's handle.

A launch has two halves with a gate between them: ``prepare`` brings a handle into being while
nothing of the engine runs yet, the caller writes the record that names the handle, and ``open``
lets the engine start. So there is no moment at which an engine runs that no record knows.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Literal

from supervisor.contracts.engine import EngineRuntimeKind, LaunchPlan, StopStyle
from supervisor.contracts.event import MemberProcess
from supervisor.contracts.failure import SpawnReason
from supervisor.contracts.host import DeviceId
from supervisor.contracts.instance import HandleReference, Liveness, Ownership


@dataclass(frozen=True, slots=True)
class Exit:
    """How a main process ended. Both ``None``: it ended, and how cannot be known."""

    exit_code: int | None
    signal: str | None
    """Such as ``SIGKILL``; then there is no exit code."""
    detail: str | None = None
    """What else is known about it, in words."""
    out_of_memory: bool = False
    """The kernel ended it for want of memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReceipt:
    """What a stop did, and what it could not do."""

    exit: Exit | None
    """The main process's; ``None`` when it was not seen to end."""
    killed: tuple[MemberProcess, ...] = ()
    """Members that KILL was sent to."""
    swept: tuple[MemberProcess, ...] = ()
    """Members that outlived the main process and were ended after it."""
    survivors: tuple[MemberProcess, ...] = ()
    """Members that are still there. Their devices are not free."""
    device_memory: Literal["returned", "left"] | None = None
    """What the devices' driver said of it afterwards, where it was asked."""


class SpawnError(Exception):
    """The engine did not start. ``reason`` is None where no listed one fits."""

    def __init__(
        self, detail: str, reason: SpawnReason | None = None, *, remains: bool = False
    ) -> None:
        """``remains``: something is still there behind the gate's handle, or may be. Who attaches
        to that can end it; without it nothing of the launch is left.
        """
        super().__init__(detail)
        self.detail = detail
        self.reason = reason
        self.remains = remains


def _quiet(phase: str, detail: str) -> None:
    """Nobody wants to know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnTicket:
    """What a launcher needs beside the plan."""

    name: str
    nonce: str
    log_path: str
    """Absolute; opened for append, both streams of the engine go there from the first byte."""
    env: Mapping[str, str]
    """The whole environment of the engine, ours included: nothing else is inherited."""
    tell: Callable[[str, str], None] = _quiet
    """Called with a phase and its detail while there is something to wait for before the start."""


class Running(ABC):
    """An engine that was started or adopted: answers for its whole tree, not for one process.

    Closing it lets go of what the daemon holds (descriptors) and never touches the engine.
    """

    ref: HandleReference

    @property
    def doubt(self) -> str | None:
        """Why nothing can be known of the tree now, where that was noticed."""
        return None

    @abstractmethod
    async def wait_exit(self) -> Exit:
        """Return once the main process is dead; within 5 ms of that where the kernel says so.

        May be awaited by several tasks, and again after the end.
        """

    @abstractmethod
    async def liveness(self) -> Liveness:
        """Of the whole tree, looked up now. A zombie counts as dead."""

    @abstractmethod
    async def members(self) -> tuple[MemberProcess, ...]:
        """The living processes of the tree, the main one included, looked up now."""

    @abstractmethod
    async def owns_socket(self, inode: int) -> Ownership:
        """Whether a living member of the tree holds the socket with this inode."""

    async def owns_cgroup(self, inode: int) -> Ownership:
        """Whether what was opened in the cgroup v2 with this inode was opened by the tree.

        ``unknown`` wherever cgroups do not tell.
        """
        return "unknown"

    async def publishes(self, port: int, *, again: bool = False) -> tuple[Ownership, str] | None:
        """Whether the host's port leads to the tree, and why not; ``None`` where its sockets tell.

        ``again`` is asked after a reply, and has to hold for all the time since the first answer.
        """
        return None

    @abstractmethod
    async def stop(self, style: StopStyle, grace_ms: int) -> StopReceipt:
        """End the tree: ask the main process, wait out the grace, then kill whatever is left.

        Returns when no member is left, or when even KILL did not help (``survivors``). With the
        main process dead already, its members are asked and killed just so. Never signals what
        is not proved to be ours; raises ``NotOursError`` or ``CannotTellError`` instead, which say
        that nothing was sent. Once anything was, or may have been, it is ``StopUnfinishedError``.
        """

    def hasten(self, grace_ms: int) -> None:  # noqa: B027 - a launcher that cannot, lets it go on
        """The stop that is under way, or about to begin, gets this much more time and no more.

        Never lengthens a grace.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of descriptors. The engine is not touched."""


class Gated(ABC):
    """A handle whose engine has not started yet. Closing it unopened ends it."""

    ref: HandleReference
    cgroup: str | None = None
    """What else the record needs for ``attach`` to find the whole tree again."""

    @abstractmethod
    async def open(self) -> Running:
        """Let the engine's own program start, and return once it has (or raise ``SpawnError``)."""

    @abstractmethod
    async def abandon(self) -> None:
        """End the waiting stub and return when it is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What is left to look for an instance by whose record cannot be read."""

    name: str
    nonce: str | None = None
    """Or its beginning. Null where even that is lost: then whatever has the name counts."""
    runtime: EngineRuntimeKind | None = None
    """How its engine ran, where that can be told."""
    cgroup: str | None = None
    """Where its record said that its engine lives. Nobody is ended by that word."""
    supervisor: str | None = None
    """Whose it was: another one on this host may have an instance of the same name."""
    log_folder: str | None = None
    """Of its logs, which carry the locks of who writes to them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bearer:
    """A living process that carries an instance's marks although no record can be read."""

    process: MemberProcess
    devices: tuple[DeviceId, ...]
    """What its marks say it was given."""
    sign: str = "by its environment"
    """How it was found."""
    ending: str = "kill it"
    """What a person has to do to end it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stray:
    """Something alive of an instance of which no record is left."""

    name: str
    """Of the instance."""
    place: str
    """Where it lives: the directory of a cgroup, or a container by name."""
    ending: str = "write 1 to its cgroup.kill"
    """What a person has to do to end it."""
    nonce: str | None = None
    """Of the launch that it was made for, or the beginning of it."""
    runtime: EngineRuntimeKind | None = None


class NotOursError(Exception):
    """The handle names something that another launch, or nobody of ours, started."""


class CannotTellError(Exception):
    """It cannot be known whether the handle is ours, so nothing is done to it."""


class StopUnfinishedError(Exception):
    """The tree was told to end, and now nobody can say who is left of it.

    The stop cannot be taken back; calling it again goes on with it.
    """


class Launcher(ABC):
    """Executes plans of one kind."""

    async def run(self) -> None:
        """What has to be done all the time, until cancelled. Many launchers have nothing to do."""
        return

    @abstractmethod
    async def prepare(self, plan: LaunchPlan, ticket: SpawnTicket) -> Gated:
        """Bring a handle into being behind a closed gate. Raises ``SpawnError``."""

    @abstractmethod
    async def attach(
        self,
        ref: HandleReference,
        nonce: str,
        cgroup: str | None = None,
        log_path: str | None = None,
    ) -> Running:
        """Answer for a handle found in a record. Never raises for a dead or strange one.

        ``Running.liveness`` of a handle that is certainly not ours any more is ``gone``; one that
        cannot be judged is ``unknown``.
        """

    @abstractmethod
    async def bearers(self, trace: Trace) -> tuple[Bearer, ...]:
        """Who carries the marks of an instance whose record cannot be read: of that nonce, or of
        that name where the nonce is lost too. Raises ``CannotTellError``.
        """

    async def strays(self, known: Container[str]) -> tuple[Stray, ...]:
        """Who lives in what only we can have made for an instance, and no record names.

        ``known`` are the cgroups and the containers that records name. What is left over and empty
        is removed; so this is to be asked before anything is launched. Raises ``CannotTellError``.
        """
        return ()
