"""Lifecycle as others see it. The RPC layer knows this interface and nothing behind it."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Literal

from supervisor.contracts.device import DeviceLeases, DeviceSnapshot
from supervisor.contracts.host import HostProfile
from supervisor.contracts.instance import InstanceView, LaunchParams
from supervisor.contracts.rpc import (
    DetectReply,
    DrainReply,
    EngineListing,
    MetricsReply,
    PinParams,
    PlanReply,
    ReleaseReply,
    ReloadReply,
    SupervisorInfo,
    Unreadable,
)


class Supervisor(ABC):
    """Every call raises ``LifecycleError`` for what it refuses, and nothing else on purpose."""

    @abstractmethod
    def info(self) -> SupervisorInfo:
        """Who this daemon is. Reads memory only."""

    @abstractmethod
    async def profile(self) -> HostProfile: ...

    @abstractmethod
    async def snapshot(self) -> DeviceSnapshot: ...

    @abstractmethod
    async def leases(self) -> DeviceLeases: ...

    @abstractmethod
    async def engines(self) -> EngineListing: ...

    @abstractmethod
    async def plan(self, params: LaunchParams, *, bounded: bool = False) -> PlanReply:
        """Exactly what a launch with these params would run. No side effect.

        ``bounded`` is as in ``launch``: a model is read for a plan as well.
        """

    @abstractmethod
    async def launch(self, params: LaunchParams, *, bounded: bool = False) -> InstanceView:
        """Launch, and return at readiness (or at the reservation, with ``wait: false``).

        A caller that is cancelled leaves the launch running. ``bounded`` holds it to what the
        config lets others than admins launch. Raises ``LaunchRefused``, ``InvalidLaunch``,
        ``NoSuchRecipe``, ``Forbidden``, ``Unavailable``.
        """

    @abstractmethod
    def list(self, *, ended: bool = False) -> tuple[InstanceView, ...]:
        """Living instances by name; with ``ended`` their tombstones too. Reads memory only."""

    @abstractmethod
    def unreadable(self) -> tuple[Unreadable, ...]:
        """Records that cannot be read and still hold something. Reads memory only."""

    @abstractmethod
    def get(self, name: str) -> InstanceView:
        """A living instance, else its tombstone. Raises ``NoSuchInstance``."""

    @abstractmethod
    async def stop(self, name: str, *, nonce: str | None, grace_ms: int | None) -> InstanceView:
        """End an instance and return when its tree is gone and its devices are free.

        During a launch this is a cancel; of an ended instance it succeeds and does nothing. With a
        shorter grace it shortens a stop that is under way.
        """

    @abstractmethod
    async def cancel(self, name: str, *, nonce: str | None, grace_ms: int | None) -> InstanceView:
        """End a launch that is not ready yet; once ready, and of an ended one, a no-op."""

    @abstractmethod
    async def restart(self, name: str, *, nonce: str | None, grace_ms: int | None) -> InstanceView:
        """End the engine and start it again with the same params, name, port and devices.

        Returns at readiness. An ended instance is launched again as it was. Raises as ``launch``.
        """

    @abstractmethod
    async def pin(self, params: PinParams) -> InstanceView:
        """Hold devices, alone and with no process, until ``release``.

        Raises ``LaunchRefused`` where the name or a device is taken, ``InvalidLaunch``.
        """

    @abstractmethod
    async def release(self, name: str, *, force: bool = False) -> ReleaseReply:
        """Give up a hold that has no process: says which devices it is known to have had.

        Raises ``NoSuchInstance``; ``NotOurs`` for an instance that can be judged, and
        ``CannotTell`` for another one. Of a record that cannot be read ``StillAlive`` while
        something of it lives, and ``CannotTell``; neither of the two by ``force``.
        ``NotDone`` where a file cannot be removed.
        """

    @abstractmethod
    async def reload(self) -> ReloadReply:
        """Read the configuration anew, and reopen the journal. Raises ``NotDone``."""

    @abstractmethod
    async def drain(self, *, grace_ms: int | None) -> DrainReply:
        """Stop every engine, all at once; meanwhile no launch is taken. Pins stay."""

    @abstractmethod
    async def wait(
        self,
        name: str,
        *,
        nonce: str | None,
        until: Literal["ready", "exited"],
        timeout_ms: int | None,
    ) -> InstanceView:
        """Return when the instance is ready, or has ended.

        Raises ``WaitTimedOut``; waiting for ``ready`` raises ``LaunchRefused`` if it ends
        first, ``HasEnded`` where it was ready and has ended.
        """

    @abstractmethod
    def log_path(self, name: str) -> str:
        """Of the newest attempt, alive or ended. Raises ``NoSuchInstance``."""

    @abstractmethod
    def redactor(self, name: str) -> Callable[[str], str]:
        """Masks that instance's secrets in a text of its log. Raises ``NoSuchInstance``."""

    @abstractmethod
    async def detect(self) -> DetectReply:
        """The engines among this host's processes, ours and others'. Raises ``NotDone``."""

    @abstractmethod
    async def metrics(self, name: str) -> MetricsReply:
        """Ask a ready engine for its metrics, in bounded time. Raises ``NoSuchInstance``."""
