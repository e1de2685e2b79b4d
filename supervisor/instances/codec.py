"""A record and its bytes on disk, written so that versions can come and go.

Members that this version does not know are kept aside when a record is read and put back when it
is written: an older daemon that works on a newer one's records loses nothing of them. A record
whose schema is newer is read as far as it goes and not written at all.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from supervisor.contracts.engine import EngineRuntimeKind, ServingOptions
from supervisor.contracts.host import DeviceId
from supervisor.contracts.instance import (
    NAME_PATTERN,
    RECORD_SCHEMA,
    DockerHandle,
    InstanceRecord,
    LaunchParams,
    ProcessHandle,
    Supervision,
)

UnreadableReason = Literal[
    "empty",
    "zero-filled",
    "not-json",
    "wrong-types",
    "name-mismatch",
    "not-a-file",
    "denied",
    "io",
    "name-taken",
]

PID_MOST: Final = (1 << 31) - 1
"""What a ``pid_t`` holds."""
PORT_MOST: Final = 65_535

MemberPath = tuple[str, ...]

_KNOWN: Final[dict[MemberPath, frozenset[str]]] = {
    path: frozenset(field.encode_name for field in msgspec.structs.fields(struct))
    for path, struct in (
        ((), InstanceRecord),
        (("supervision",), Supervision),
        (("supervision", "launch"), LaunchParams),
        (("supervision", "launch", "options"), ServingOptions),
    )
}
"""The objects of a record whose unknown members are kept, and what is known of them. Launch
parameters are among them, for what a client may not send a newer daemon may still have written."""


class Unreadable(Exception):
    """This is no record that can be used."""

    def __init__(self, reason: UnreadableReason, detail: str) -> None:
        super().__init__(detail)
        self.reason: Final = reason
        self.detail: Final = detail


@dataclass(frozen=True, slots=True)
class Decoded:
    """A record as it was read, with what this version has no member for."""

    record: InstanceRecord
    writable: bool
    """False for a newer schema."""
    unknown: Mapping[MemberPath, Mapping[str, Any]]


def valid_name(name: str) -> bool:
    """Whether an instance may have this name, which makes it a safe file name as it is."""
    return re.fullmatch(NAME_PATTERN, name) is not None


def encode_record(
    record: InstanceRecord, unknown: Mapping[MemberPath, Mapping[str, Any]] | None = None
) -> bytes:
    """The bytes of a record, ``unknown`` members put back where their object still is."""
    if not unknown:
        return msgspec.json.encode(record) + b"\n"
    tree = msgspec.to_builtins(record)
    for path, node in _objects(tree):
        node.update(unknown.get(path, {}))
    return msgspec.json.encode(tree) + b"\n"


def decode_record(data: bytes, name: str) -> Decoded:
    """Read the record of the instance ``name``. Raises ``Unreadable``."""
    tree = _parse(data)
    version = _schema_version(tree)
    unknown = {}
    for path, node in _objects(tree):
        if extra := {key: node.pop(key) for key in node.keys() - _KNOWN[path]}:
            unknown[path] = extra
    try:
        record = msgspec.convert(tree, InstanceRecord)
    except msgspec.ValidationError as error:
        if version <= RECORD_SCHEMA:
            raise Unreadable("wrong-types", str(error)) from None
        # What a newer daemon meant to do is lost on us; whose devices these are is not.
        record = _without_supervision(tree)
    _check(record, name)
    return Decoded(record, version <= RECORD_SCHEMA, unknown)


@dataclass(frozen=True, slots=True)
class Remains:
    """What a broken record still says: enough to look for its processes and keep its devices."""

    nonce: str | None
    devices: tuple[DeviceId, ...] | None
    """Null: nothing tells, which is not the same as none."""
    boot_id: str | None = None
    """Of the machine's run in which it was written."""
    confined: bool = False
    """A cgroup was made for its engine."""
    started: bool = True
    """False where it says that nothing had been started yet."""
    cgroup: str | None = None
    """Which one, where that can still be read."""
    runtime: EngineRuntimeKind | None = None
    """How its engine ran, and so who has to be asked for it."""


def salvage(data: bytes) -> Remains:
    """What can be told out of anything, a record cut in half included."""
    nonce = re.search(rb'"nonce"\s*:\s*("[^"\\]+")', data)
    devices = re.search(rb'"devices"\s*:\s*(\[[^\[\]{}]*\])', data)
    boot = re.search(rb'"bootId"\s*:\s*("[^"\\]+")', data)
    cgroup = re.search(rb'"cgroup"\s*:\s*("[^"\\]+")', data)
    runtime = re.search(rb'"runtime"\s*:\s*("[^"\\]+")\s*,\s*"ref"', data)
    return Remains(
        _decoded(nonce, str) if nonce else None,
        _decoded(devices, tuple[DeviceId, ...]) if devices else None,
        boot_id=_decoded(boot, str) if boot else None,
        confined=re.search(rb'"cgroup"\s*:\s*"[^"]', data) is not None,
        started=re.search(rb'"ref"\s*:\s*null', data) is None,
        cgroup=_decoded(cgroup, str) if cgroup else None,
        runtime=_decoded(runtime, EngineRuntimeKind) if runtime else None,
    )


def _decoded(found: re.Match[bytes], wanted: Any) -> Any:
    try:
        return msgspec.json.decode(found[1], type=wanted)
    except msgspec.MsgspecError:
        return None


def _parse(data: bytes) -> dict[str, Any]:
    if not data.strip():
        raise Unreadable("empty", "the file is empty")
    if not data.strip(b"\0"):
        raise Unreadable("zero-filled", f"the file is {len(data)} zero bytes")
    try:
        tree = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Unreadable("not-json", str(error)) from None
    if not isinstance(tree, dict):
        raise Unreadable("wrong-types", "the file holds no JSON object")
    return tree


def _schema_version(tree: dict[str, Any]) -> int:
    supervision = tree.get("supervision")
    version = supervision.get("schemaVersion") if isinstance(supervision, dict) else None
    return version if isinstance(version, int) else RECORD_SCHEMA


def _objects(tree: dict[str, Any]) -> Iterator[tuple[MemberPath, dict[str, Any]]]:
    for path in _KNOWN:
        node: Any = tree
        for member in path:
            node = node.get(member) if isinstance(node, dict) else None
        if isinstance(node, dict):
            yield path, node


def _without_supervision(tree: dict[str, Any]) -> InstanceRecord:
    seeds_part = {key: value for key, value in tree.items() if key != "supervision"}
    try:
        return msgspec.convert(seeds_part, InstanceRecord)
    except msgspec.ValidationError as error:
        raise Unreadable("wrong-types", f"of a newer version, and {error}") from None


def _check(record: InstanceRecord, name: str) -> None:
    if record.name != name:
        raise Unreadable("name-mismatch", f"the file is named {name!r}, its record {record.name!r}")
    # To a signal these mean far more than a process. Process 1 is one, and no engine's: it is gone.
    if isinstance(record.ref, ProcessHandle) and not 1 <= record.ref.pid <= PID_MOST:
        raise Unreadable("wrong-types", f"no engine has the pid {record.ref.pid}")
    if not 0 <= record.port <= PORT_MOST:
        raise Unreadable("wrong-types", f"no engine has the port {record.port}")
    paths = (record.supervision.log_path, record.supervision.cgroup) if record.supervision else ()
    if any("\0" in path for path in paths if path):
        raise Unreadable("wrong-types", "a path holds a NUL byte")
    if isinstance(record.ref, DockerHandle) and not record.ref.container:
        raise Unreadable("wrong-types", "the container has no id")
