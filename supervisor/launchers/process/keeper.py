"""Pidfds that outlive the daemon: kept elsewhere, they tell how an engine ended meanwhile."""

from typing import Protocol

from supervisor.contracts.instance import ProcessHandle


class PidfdKeeper(Protocol):
    """Keeps copies of descriptors by name over a restart of ours, as systemd's fd store does."""

    def keep(self, name: str, fd: int) -> None:
        """Take a copy; ``fd`` stays the caller's."""

    def take(self, name: str) -> int | None:
        """What an earlier daemon left under this name; the caller's to close. The copy stays."""

    def drop(self, name: str) -> None:
        """Forget what has this name, if anything has."""


class NoKeeper:
    """Where nobody keeps anything: the exit of an engine that ended meanwhile is not known."""

    def keep(self, name: str, fd: int) -> None:
        """Nothing is kept."""

    def take(self, name: str) -> None:
        """Nothing was kept."""

    def drop(self, name: str) -> None:
        """Nothing is there to forget."""


def keeping_name(ref: ProcessHandle, nonce: str) -> str:
    """One for each attempt of a launch."""
    return f"engine-{nonce}-{ref.pid}"
