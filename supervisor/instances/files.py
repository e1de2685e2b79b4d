"""Records and tombstones as files. Blocking: one thread at a time for any one name.

``<state>/instances/NAME.json`` is a record, which is the lease; ``<state>/tombstones/NAME.json``
what is left of an ended instance; ``<state>/quarantine/`` what could not be read. Names are safe as
file names, and no two of them are one file.
"""

import contextlib
import os
import threading
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from supervisor.contracts.instance import InstanceRecord, Tombstone
from supervisor.instances.codec import MemberPath, encode_record, valid_name
from supervisor.instances.durable import (
    Step,
    StoreError,
    make_folder,
    move_aside,
    no_step,
    unlink_durably,
    write_durably,
)

_ENDED_KEPT: Final = 4096
"""How many ended launches are remembered, so that a late write cannot bring one back."""


class RecordFiles:
    """The folders of one state directory and the rules of changing them.

    Nothing that was removed comes back: a write for a launch (its nonce) whose record was removed
    is refused, however late the thread comes that carries it.
    """

    def __init__(self, state_dir: Path, *, tombstones: int = 200, step: Step = no_step) -> None:
        self._state_dir = state_dir
        self.instances: Final = state_dir / "instances"
        self.tombstones: Final = state_dir / "tombstones"
        self.quarantine: Final = state_dir / "quarantine"
        self._bound = tombstones
        self._step = step
        self._nonces: dict[str, str] = {}
        self._unknown: dict[str, tuple[str, Mapping[MemberPath, Mapping[str, Any]]]] = {}
        self._read_only: set[str] = set()
        self._ended: OrderedDict[str, None] = OrderedDict()
        self._graves: OrderedDict[str, None] = OrderedDict()
        self._burying = threading.Lock()  # pruning touches the tombstones of other names

    def make_folders(self) -> tuple[Path, ...]:
        """Ours alone, all of them. The state directory's own mode may be its unit's choice.

        Says where it moved what was no folder. What lies in the place of the records is not moved,
        for they may come back with a mount.
        """
        make_folder(self._state_dir, keep_mode=True)
        moved = tuple(
            move_aside(folder)
            for folder in (self.tombstones, self.quarantine)
            if os.path.lexists(folder) and not folder.is_dir()
        )
        for folder in (self.instances, self.tombstones, self.quarantine):
            make_folder(folder)
        return moved

    def record_path(self, name: str) -> Path:
        if not valid_name(name):
            raise ValueError(f"{name!r} names no instance")
        return self.instances / f"{name}.json"

    def tombstone_path(self, name: str) -> Path:
        if not valid_name(name):
            raise ValueError(f"{name!r} names no instance")
        return self.tombstones / f"{name}.json"

    def writable(self, name: str) -> bool:
        """False while the record on disk is of a newer schema."""
        return name not in self._read_only

    def loaded(
        self,
        record: InstanceRecord,
        *,
        writable: bool,
        unknown: Mapping[MemberPath, Mapping[str, Any]],
    ) -> None:
        """Note what was read of a record, which its next write must respect."""
        self._nonces[record.name] = record.nonce
        if unknown:
            self._unknown[record.name] = (record.nonce, unknown)
        if not writable:
            self._read_only.add(record.name)

    def loaded_tombstones(self, names: list[str]) -> None:
        """Note the tombstones that are there, oldest first."""
        self._graves = OrderedDict.fromkeys(names)

    def write(self, record: InstanceRecord) -> None:
        """Make this the record of its name, and end the tombstone of an earlier bearer."""
        path = self.record_path(record.name)
        if record.nonce in self._ended:
            raise StoreError("ended", f"{record.name}: this launch has ended, its record is gone")
        if not self.writable(record.name):
            raise StoreError("newer-schema", f"{path}: written by a newer version, left as it is")
        nonce, unknown = self._unknown.get(record.name, ("", {}))
        data = encode_record(record, unknown if nonce == record.nonce else None)
        try:
            self._put(path, data)
        except StoreError as error:
            if error.landed:
                self._nonces[record.name] = record.nonce
            raise
        self._nonces[record.name] = record.nonce
        if record.name in self._graves:
            with self._burying:
                self._dig_up(record.name)

    def write_if_missing(self, record: InstanceRecord) -> bool:
        """Put a record back that somebody took away, and say whether that was so."""
        known = self._nonces.get(record.name) == record.nonce and self.writable(record.name)
        if not known or os.path.lexists(self.record_path(record.name)):
            return False
        self.write(record)
        return True

    def missing(self) -> tuple[str, ...]:
        """The names whose records should be there and are not."""
        known = tuple(self._nonces)
        try:
            there = {*os.listdir(self.instances)}
        except FileNotFoundError:
            there = set()
        except OSError as error:
            raise StoreError.of(error, self.instances) from error
        return tuple(name for name in known if self.record_path(name).name not in there)

    def holds(self, name: str) -> bool:
        """Whether a record of this name is on the disk, for all that was done to it here."""
        return name in self._nonces

    def _put(self, path: Path, data: bytes) -> None:
        """A folder that somebody removed under the running daemon is made again."""
        try:
            write_durably(path, data, self._step)
        except StoreError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            self.make_folders()
            write_durably(path, data, self._step)

    def remove(self, name: str) -> None:
        """Remove a record, and with it the lease. One of a newer schema too: its end is a fact."""
        try:
            unlink_durably(self.record_path(name), self._step)
        except StoreError as error:
            if error.landed:
                self._forget(name)
            raise
        self._forget(name)

    def bury(self, tombstone: Tombstone) -> None:
        """Put a tombstone in the place of a record. The record goes even where the stone fails to
        be written, for a full disk must not hold devices; then the error follows the removal.

        A later launch of the name, which has a record of its own by now, is left alone.
        """
        name, nonce = tombstone.record.name, tombstone.record.nonce
        if self._nonces.get(name, nonce) != nonce:
            return
        try:
            self._set_stone(tombstone)
        finally:
            self.remove(name)
            self._mark_ended(nonce)

    def _set_stone(self, tombstone: Tombstone) -> None:
        name = tombstone.record.name
        data = msgspec.json.encode(tombstone) + b"\n"
        with self._burying:
            self._put(self.tombstone_path(name), data)
            self._graves[name] = None
            self._graves.move_to_end(name)
            while len(self._graves) > self._bound:
                self._dig_up(next(iter(self._graves)))

    def _dig_up(self, name: str) -> None:
        # No flush: a tombstone that comes back after a power loss is pruned again.
        self._graves.pop(name, None)
        with contextlib.suppress(OSError):
            self.tombstone_path(name).unlink(missing_ok=True)

    def _forget(self, name: str) -> None:
        self._unknown.pop(name, None)
        self._read_only.discard(name)
        if nonce := self._nonces.pop(name, None):
            self._mark_ended(nonce)

    def _mark_ended(self, nonce: str) -> None:
        with self._burying:
            self._ended[nonce] = None
            while len(self._ended) > _ENDED_KEPT:
                self._ended.popitem(last=False)
