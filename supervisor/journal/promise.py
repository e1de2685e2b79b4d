"""The file in the state directory that says: the journal has every number, so go on counting."""

import os
from contextlib import suppress
from pathlib import Path

import msgspec
import structlog
from msgspec.structs import replace

from supervisor.contracts._base import Fact

log = structlog.get_logger(__name__)


class Continuity(Fact, frozen=True, kw_only=True):
    """What must be known beside the journal to go on after its last line."""

    epoch: str
    boot_id: str
    ended_at: int | None = None
    """The last number that a daemon gave out which left in order; null while one counts."""


class Promise:
    """There while the journal lacks no line that anybody was told of.

    A full disk has no room to note that lines were lost. It always lets a file be removed, so the
    promise is withdrawn at the first lost line, before a subscriber hears of it, and given again
    once the journal has told the gap. A daemon that dies in between leaves none. One that leaves in
    order says where it ended: that is what outlives the machine, for of lines alone nobody can tell
    whether later ones were on their way to the disk when the power went.
    """

    def __init__(self, path: Path, value: Continuity) -> None:
        self._path = path
        self._value = value
        self.given = False
        self._told = False

    def give(self) -> None:
        """Without it the next start begins a new epoch, which is no reason not to go on now."""
        if read(self._path) == self._value:
            self.given = True
            return
        try:
            self._write(self._value)
        except OSError as error:
            with suppress(OSError):
                self.withdraw()  # what an earlier daemon promised does not hold for this one
            if not self._told:
                log.warning(
                    "the journal's epoch cannot be kept", path=str(self._path), error=str(error)
                )
            self._told = True
        else:
            self.given, self._told = True, False

    def withdraw(self) -> None:
        """Raises ``OSError`` where even that cannot be done."""
        with suppress(FileNotFoundError):
            os.unlink(self._path)
        self.given = False

    def conclude(self, last_seq: int) -> None:
        """It ends here, with every line written. Raises ``OSError``."""
        self._write(replace(self._value, ended_at=last_seq))

    def _write(self, value: Continuity) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = self._path.with_name(self._path.name + ".tmp")
        try:
            with fresh.open("wb") as file:
                os.fchmod(file.fileno(), 0o600)
                file.write(msgspec.json.encode(value))
                file.flush()
                os.fsync(file.fileno())
            os.replace(fresh, self._path)
        except OSError:
            with suppress(OSError):
                fresh.unlink()
            raise


def read(path: Path) -> Continuity | None:
    """``None`` where there is no promise, or none that can be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Continuity)
    except (OSError, msgspec.DecodeError):
        return None
