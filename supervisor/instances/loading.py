"""Reading a state directory at start. One bad file costs itself, never the start and never another.

What cannot be read is moved to ``quarantine/``, kept there, and looked at again at each start: a
newer daemon, or a person's hand, may have made it readable. Until then it is reported with what it
still tells about its devices, for a record that cannot be read frees nothing.
"""

import contextlib
import os
import re
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

import msgspec

from supervisor.contracts.engine import EngineRuntimeKind
from supervisor.contracts.host import DeviceId
from supervisor.contracts.instance import InstanceRecord, Tombstone
from supervisor.instances.codec import (
    Decoded,
    Remains,
    Unreadable,
    UnreadableReason,
    decode_record,
    salvage,
    valid_name,
)
from supervisor.instances.durable import StoreError, sync_folder
from supervisor.instances.files import RecordFiles

UNREADABLE_KEPT_S: Final = 30 * 86_400
"""A tombstone that cannot be read now may be a newer daemon's, which may be back tomorrow."""

_FILE: Final = re.compile(r"(.+)\.json")
_QUARANTINED: Final = re.compile(r"(.+)\.json(?:\.\d+)?")
"""A number follows where the name has been in quarantine before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantined:
    """A file that should be a record and is none."""

    name: str
    """Of the instance, by the file's name; perhaps not one an instance can have."""
    path: Path
    """Where it lies now."""
    reason: UnreadableReason | Literal["lost"]
    """``lost``: there is no file any more, only what still lives at ``path``."""
    detail: str
    nonce: str | None
    devices: tuple[DeviceId, ...] | None
    """Null: nothing in it tells."""
    known: bool
    """It was in quarantine before this start."""
    boot_id: str | None = None
    confined: bool = False
    started: bool = True
    cgroup: str | None = None
    runtime: EngineRuntimeKind | None = None
    """As in ``Remains``."""


@dataclass(slots=True)
class Loaded:
    """What a state directory holds."""

    records: dict[str, InstanceRecord] = field(default_factory=dict)
    read_only: set[str] = field(default_factory=set)
    """Names whose records are of a newer schema."""
    tombstones: dict[str, Tombstone] = field(default_factory=dict)
    """Oldest first; none has the name of a record."""
    quarantined: list[Quarantined] = field(default_factory=list)
    moved: tuple[Path, ...] = ()
    """Where what lay in the place of a folder of ours is now."""
    pruned: tuple[Path, ...] = ()
    """Tombstones that could not be read for so long that they were removed."""


def load(files: RecordFiles) -> Loaded:
    """Read everything, and put the folders in order. Raises ``StoreError`` where they cannot be
    used at all.
    """
    found = Loaded(moved=files.make_folders())
    for folder in (files.instances, files.tombstones):
        _sweep(folder)
    _reconsider(files, found)
    for path, name in _entries(files.instances):
        try:
            decoded = _read(path, name)
        except Unreadable as why:
            found.quarantined.append(_set_aside(files, path, name, why))
            continue
        found.records[name] = decoded.record
        if not decoded.writable:
            found.read_only.add(name)
        files.loaded(decoded.record, writable=decoded.writable, unknown=decoded.unknown)
    _load_tombstones(files, found)
    return found


def _sweep(folder: Path) -> None:
    """Remove what a write left that did not come to its rename."""
    for path in _listed(folder):
        if path.name.endswith(".tmp") and not path.is_dir():
            with contextlib.suppress(OSError):
                path.unlink()


def _reconsider(files: RecordFiles, found: Loaded) -> None:
    for path, name in _entries(files.quarantine, _QUARANTINED):
        try:
            _restore(path, name, files.instances / f"{name}.json")
        except Unreadable as why:
            found.quarantined.append(_report(path, name, why, known=True))


def _restore(path: Path, name: str, home: Path) -> None:
    """Move a file back among the records if it can be read by now, else tell why not."""
    _read(path, name)
    if os.path.lexists(home):
        raise Unreadable("name-taken", f"another record has the name {name!r} by now")
    try:
        _move(path, home)
    except OSError as error:
        raise Unreadable("io", f"cannot be moved back: {error.strerror}") from None


def _load_tombstones(files: RecordFiles, found: Loaded) -> None:
    """A tombstone beside its own launch's record is a burial that was cut short: it is finished. A
    tombstone beside a later launch's record is over. One that cannot be read holds nothing, and
    goes when it is old.
    """
    stones: dict[str, Tombstone] = {}
    unreadable: list[Path] = []
    for path, name in _entries(files.tombstones):
        try:
            stone = msgspec.json.decode(_content(path), type=Tombstone)
        except (Unreadable, msgspec.MsgspecError, RecursionError):
            unreadable.append(path)
            continue
        if stone.record.name == name:
            stones[name] = stone
        else:
            unreadable.append(path)
    found.pruned = tuple(path for path in unreadable if _prune(path))
    for name in sorted(stones, key=lambda name: stones[name].ended_at):
        stone, record = stones[name], found.records.get(name)
        if record is not None and record.nonce != stone.record.nonce:
            with contextlib.suppress(OSError):
                files.tombstone_path(name).unlink()
            continue
        if record is not None:
            with contextlib.suppress(StoreError):
                files.remove(name)
                del found.records[name]
                found.read_only.discard(name)
        if name not in found.records:
            found.tombstones[name] = stone
    files.loaded_tombstones(list(found.tombstones))


def _prune(path: Path) -> bool:
    """Remove a file that nobody wrote to for long; by the wall, for that is what a file tells."""
    try:
        if time.time() - path.lstat().st_mtime < UNREADABLE_KEPT_S:
            return False
        path.unlink()
    except OSError:
        return False
    return True


def _read(path: Path, name: str) -> Decoded:
    if not valid_name(name):
        raise Unreadable("name-mismatch", f"no instance can have the name {name!r}")
    return decode_record(_content(path), name)


def _content(path: Path) -> bytes:
    """A plain file's bytes. Neither a pipe nor a link's target is waited for or followed."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            raise Unreadable("not-a-file", "this is no plain file")
        with open(os.open(path, flags), "rb") as opened:
            return opened.read()
    except PermissionError as error:
        raise Unreadable("denied", str(error.strerror)) from None
    except OSError as error:
        raise Unreadable("io", str(error.strerror)) from None


def _set_aside(files: RecordFiles, path: Path, name: str, why: Unreadable) -> Quarantined:
    """Move a file out of the way. Where even that fails it stays where it is, and is reported."""
    target = files.quarantine / path.name
    number = 0
    while os.path.lexists(target):
        number += 1
        target = files.quarantine / f"{path.name}.{number}"
    try:
        _move(path, target)
    except OSError as error:
        stuck = Unreadable(why.reason, f"{why.detail} (and cannot be moved: {error.strerror})")
        return _report(path, name, stuck, known=False)
    return _report(target, name, why, known=False)


def _report(path: Path, name: str, why: Unreadable, *, known: bool) -> Quarantined:
    try:
        remains = salvage(_content(path))
    except Unreadable:
        remains = Remains(None, None)
    return Quarantined(
        name=name,
        path=path,
        reason=why.reason,
        detail=why.detail,
        nonce=remains.nonce,
        devices=remains.devices,
        known=known,
        boot_id=remains.boot_id,
        confined=remains.confined,
        started=remains.started,
        cgroup=remains.cgroup,
        runtime=remains.runtime,
    )


def _move(source: Path, target: Path) -> None:
    source.rename(target)
    sync_folder(target.parent)
    sync_folder(source.parent)


def _entries(folder: Path, pattern: re.Pattern[str] = _FILE) -> Iterator[tuple[Path, str]]:
    for path in _listed(folder):
        if match := pattern.fullmatch(path.name):
            yield path, match[1]


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise StoreError.of(error, folder) from error
