"""What lifecycle's calls raise. Their texts are for people; clients go by the class (its code)."""

from supervisor.contracts.failure import LaunchFailure


class LifecycleError(Exception):
    """A call that was refused or failed. Its text says what to do next, where something can."""


class LaunchRefused(LifecycleError):
    """A launch failed, in the one typed way there is."""

    def __init__(self, failure: LaunchFailure) -> None:
        super().__init__(failure)
        self.failure = failure


class InvalidLaunch(LifecycleError):
    """The params contradict themselves or are not usable; nothing was tried."""


class Forbidden(LifecycleError):
    """Beyond what the config lets this caller launch; nothing was tried."""


class NoSuchRecipe(LifecycleError):
    """The config has no recipe of this name."""


class NoSuchInstance(LifecycleError):
    """Neither a record nor a tombstone has this name (or this nonce of it)."""


class NotOurs(LifecycleError):
    """The handle in the record belongs to someone else; it was not touched."""


class PinnedInstance(LifecycleError):
    """A pinned hold has no process to stop; it is released."""


class CannotTell(LifecycleError):
    """It cannot be known whether the handle is ours; nothing was signalled or freed."""


class StopIncomplete(LifecycleError):
    """Something survived KILL; the devices stay held."""


class StillAlive(LifecycleError):
    """Something of a record that cannot be read lives; its devices were not released."""


class WaitTimedOut(LifecycleError):
    """The awaited moment did not come within the caller's own limit."""


class HasEnded(LifecycleError):
    """What was waited for cannot come any more, and no failed launch is the reason."""


class NotDone(LifecycleError):
    """Something of this host or its configuration was in the way; all stayed as it was."""


class Unavailable(LifecycleError):
    """The daemon is on its way out and takes no new work."""
