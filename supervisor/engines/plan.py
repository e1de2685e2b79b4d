"""From a request to a plan, the same way for every engine.

The result depends on the request and the engine's rows alone, and there is one for every request of
the right types: whatever cannot be said is left out, and the draft says so beside the plan.
"""

import posixpath
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from supervisor.contracts.engine import (
    AddressOverride,
    HealthCheck,
    LaunchPlan,
    LaunchRequest,
    Mount,
    PlanNotes,
    PortBinding,
    ServingOptions,
)
from supervisor.contracts.host import HostProfile
from supervisor.engines.address import EVERYWHERE, LOOPBACK, address_of
from supervisor.engines.override import Given, arguments, read, variables
from supervisor.engines.spelling import KNOBS, Ask, Flag, Knob, Lacks, Noted, Row, Says, Spelling

_WIRE_NAMES: Mapping[str, str] = dict(
    zip(ServingOptions.__struct_fields__, ServingOptions.__struct_encode_fields__, strict=True)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """How an engine's image is run."""

    image: Callable[[HostProfile], str | None]
    port: int
    """The port inside, which stays what the image expects."""
    models: str = "/models"
    """Where the model is mounted, read-only."""
    command: tuple[str, ...] = ()
    """What follows the image's entrypoint before our flags."""
    with_siblings: bool = False
    """Mount the folder that the model lies in, for a model of several files side by side."""
    shm_bytes: int | UnsetType = UNSET
    ulimits: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Everything of an engine that a plan is made of."""

    spelling: Spelling
    health: HealthCheck
    container: Container
    command: tuple[str, ...] = ()
    """Words between the binary and our flags."""
    env: Mapping[str, str] = field(default_factory=dict)
    """The engine's own; a launch's beat them."""

    def plan(self, request: LaunchRequest) -> LaunchPlan:
        """What to run for ``request``."""
        return draft(request, self).plan

    def explain(self, request: LaunchRequest) -> PlanNotes:
        """What ``plan`` leaves out of the same request, and what is worth knowing about it."""
        result = draft(request, self)
        return PlanNotes(dropped=result.dropped, notes=result.notes)

    def address(self, extra_args: Sequence[str], env: Mapping[str, str]) -> AddressOverride:
        """The effective host and port; an argument beats a variable."""
        given = read(self.spelling, extra_args)
        return address_of(self.spelling, variables(self.spelling, env) | arguments(given))


@dataclass(frozen=True, slots=True)
class Draft:
    """A plan and what was given up on the way to it."""

    plan: LaunchPlan
    dropped: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where the engine runs, as it sees it itself and as others reach it."""

    listen_host: str
    listen_port: int
    model: str
    port: PortBinding
    mounts: tuple[Mount, ...] = ()


def draft(request: LaunchRequest, rows: Rows) -> Draft:
    """The plan of ``request``. Total: never raises for a well-typed one."""
    spelling = rows.spelling
    given = read(spelling, request.extra_args)
    ask = Ask(request.options, arguments(given), variables(spelling, request.env))
    said = {**ask.variables, **ask.arguments}
    notes = [_cut_note(spelling, one.cut) for one in given if one.cut]
    address = address_of(spelling, said)
    bind_host = address.host or LOOPBACK
    port = address.port or request.port
    in_docker = request.runtime == "docker"
    if in_docker:
        place = _in_container(request, rows.container, port)
        if inner := [one for one in given if one.flag in (spelling.host, spelling.port)]:
            notes.append(_inner_note(inner, place))
            given = tuple(one for one in given if one not in inner)
    else:
        binding = PortBinding(container=port, host=port)
        place = _Place(
            listen_host=bind_host, listen_port=port, model=request.model_path, port=binding
        )
    writer = _Writer(spelling, ask, given, notes)
    writer.write("modelPath", spelling.model, place.model)
    writer.flag(spelling.host, place.listen_host)
    writer.flag(spelling.port, str(place.listen_port))
    if request.served_model_name:
        writer.write("servedModelName", spelling.name, request.served_model_name)
    for knob in KNOBS:
        row, value = spelling.knobs[knob], getattr(request.options, knob)
        if _asks(knob, row, value):
            writer.write(_WIRE_NAMES[knob], row, value)
    for switch in spelling.switches:
        writer.flag(switch, "")
    before = rows.container.command if in_docker else (request.binary, *rows.command)
    extra = (word for one in given for word in one.words)
    plan = LaunchPlan(
        kind=request.runtime,
        argv=(*before, *writer.argv, *extra),
        env={**rows.env, **request.env},
        ports=(place.port,),
        mounts=place.mounts,
        devices=request.devices,
        health=_health(rows, said),
        bind_host=bind_host,
    )
    if in_docker:
        plan = _with_image(plan, request, rows.container)
    return Draft(plan, tuple(writer.dropped), tuple(notes))


class _Writer:
    """Collects the words of our own flags, without those that the extra arguments repeat."""

    def __init__(
        self, spelling: Spelling, ask: Ask, given: Iterable[Given], notes: list[str]
    ) -> None:
        self.argv: list[str] = []
        self.dropped: list[str] = []
        self._spelling = spelling
        self._ask = ask
        self._overridden = {one.flag for one in given if one.flag}
        self._notes = notes

    def write(self, what: str, row: Row, value: Any) -> None:
        """Say ``value`` as ``row`` has it, or note why not."""
        if isinstance(row, Lacks):
            self.dropped.append(f"{what}: {row.reason}")
            return
        answers = [(word.flag, word.value(value, self._ask)) for word in row.words]
        for _, answer in answers:
            if isinstance(answer, Lacks):
                self.dropped.append(f"{what}: {answer.reason}")
                return
        kept = [pair for pair in answers if pair[0] not in self._overridden]
        if len(kept) == len(answers):
            kept += [(word.flag, word.value(value, self._ask)) for word in row.companions]
        else:
            self._notes.append(f"{what}: the extra arguments say it themselves")
        for flag, answer in kept:
            match answer:
                case Noted(text, note):
                    self._notes.append(f"{what}: {note}")
                    self.flag(flag, text)
                case str(text):
                    self.flag(flag, text)

    def flag(self, flag: Flag, value: str) -> None:
        """Write one flag, unless it is overridden."""
        if flag in self._overridden:
            return
        name = flag.names[0]
        if not name:
            self.argv.append(value)
        elif not flag.takes:
            self.argv.append(name)
        elif value.startswith("-") and self._spelling.grammar.equals:
            self.argv.append(f"{name}={value}")  # argparse would take the value for a flag
        else:
            self.argv += (name, value)


def _asks(knob: Knob, row: Row, value: object) -> bool:
    """Whether a knob asks for anything that the engine would not do by itself."""
    if value is UNSET or value is None or value is False or value == "":
        return False
    if value == "auto":
        return isinstance(row, Says) and row.auto
    return not (value == 1 and knob in ("tensor_parallel", "pipeline_parallel"))


def _in_container(request: LaunchRequest, container: Container, port: int) -> _Place:
    """Inside, the engine listens everywhere on its image's port; outside, where it is asked to."""
    path = request.model_path.rstrip("/")
    folder, name = posixpath.split(path)
    model = f"{container.models}/{name}"
    shared = container.with_siblings and folder.strip("/")  # never the whole of "/"
    mount = (
        Mount(from_=folder, to=container.models, read_only=True)
        if shared
        else Mount(from_=path, to=model, read_only=True)
    )
    return _Place(
        listen_host=EVERYWHERE,
        listen_port=container.port,
        model=model,
        port=PortBinding(container=container.port, host=port),
        mounts=(mount,),
    )


def _with_image(plan: LaunchPlan, request: LaunchRequest, container: Container) -> LaunchPlan:
    return replace(
        plan,
        image=request.docker_image or container.image(request.host) or UNSET,
        shm_bytes=container.shm_bytes,
        ulimits=dict(container.ulimits) or UNSET,
    )


def _health(rows: Rows, said: Mapping[Flag, str]) -> HealthCheck:
    moved = rows.spelling.path_prefix
    prefix = said.get(moved) if moved else None
    if not prefix:
        return rows.health
    health = replace(rows.health, path=prefix + rows.health.path)
    if health.deep is not UNSET:
        health = replace(health, deep=replace(health.deep, path=prefix + health.deep.path))
    return health


def _cut_note(spelling: Spelling, flag: str) -> str:
    return f"{flag} was cut from its value: {spelling.program} takes the two as two words"


def _inner_note(inner: Iterable[Given], place: _Place) -> str:
    flags = " and ".join(dict.fromkeys(one.words[0].partition("=")[0] for one in inner))
    return (
        f"{flags} name the published address: in its container the engine listens on "
        f"{place.listen_host}:{place.listen_port}"
    )
