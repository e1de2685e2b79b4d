"""From a request to a plan, the same way for every engine.

The result depends on the request and the engine's rows alone, and there is one for every request of
the right types: whatever cannot be said is left out, and the draft says so beside the plan.
"""

import posixpath
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from msgspec import UNSET
from msgspec.structs import replace

from supervisor.contracts.engine import (
    AddressOverride,
    DeviceDemand,
    HealthCheck,
    LaunchPlan,
    LaunchRequest,
    PlanNotes,
    PortBinding,
    ServingOptions,
)
from supervisor.contracts.host import Accelerator
from supervisor.engines.address import LOOPBACK, address_of
from supervisor.engines.container import Container, Place, in_container, model_by_flag, with_image
from supervisor.engines.override import Given, arguments, read, variables
from supervisor.engines.parallelism import PARALLELISM, demand
from supervisor.engines.spelling import KNOBS, Ask, Flag, Knob, Lacks, Noted, Row, Says, Spelling

_WIRE_NAMES: Mapping[str, str] = dict(
    zip(ServingOptions.__struct_fields__, ServingOptions.__struct_encode_fields__, strict=True)
)


PYTHON = re.compile(r"python[0-9.]*t?")
"""The base name of a Python interpreter, which needs to be told what to run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Everything of an engine that a plan is made of."""

    spelling: Spelling
    health: HealthCheck
    container: Container
    command: tuple[str, ...] = ()
    """Words between the binary and our flags."""
    module: tuple[str, ...] = ()
    """In their place where the binary is a Python interpreter."""
    programs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """In their place where the engine has another program of this base name."""
    workdir: Callable[[str], str | None] = lambda _: None
    """From the binary: where the engine must be run, if it minds."""
    env: Mapping[str, str] = field(default_factory=dict)
    """The engine's own; a launch's beat them."""
    env_on: Mapping[Accelerator, Mapping[str, str]] = field(default_factory=dict)
    """And those that it needs on one kind of device."""
    ready_env: Mapping[str, int] = field(default_factory=dict)
    """Variables by which the engine bounds its own start, with its default in seconds. Left below
    our deadline, they would end an engine that still has time."""
    spreads: Literal["all", "parallel", "one"] = "all"
    """Over which of the leased devices: as many as parallelism says, or one."""

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
        for one in given:
            if one.flag and one.flag in self.spelling.barred:
                flag, reason = one.words[0].partition("=")[0], self.spelling.barred[one.flag]
                return AddressOverride(problem=f"{self.spelling.program}: {flag} {reason}")
        return address_of(self.spelling, variables(self.spelling, env) | arguments(given))

    def demand(
        self,
        options: ServingOptions,
        extra_args: Sequence[str],
        env: Mapping[str, str],
        config: Sequence[str] = (),
    ) -> DeviceDemand:
        """How many devices all of that asks for; ``config`` are the words of a file."""
        return demand(self.spelling, options, extra_args, env, config)

    def config(self, extra_args: Sequence[str]) -> str | None:
        """The file that the engine will read more flags from."""
        flag = self.spelling.config
        return arguments(read(self.spelling, extra_args)).get(flag) if flag else None


@dataclass(frozen=True, slots=True)
class Draft:
    """A plan and what was given up on the way to it."""

    plan: LaunchPlan
    dropped: tuple[str, ...]
    notes: tuple[str, ...]


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
        place = in_container(request, rows.container, bind_host, port)
        inner = [one for one in given if one.flag in (spelling.host, spelling.port)]
        if inner and not request.host_network:
            notes.append(_inner_note(inner, place))
            given = tuple(one for one in given if one not in inner)
    else:
        binding = PortBinding(container=port, host=port)
        place = Place(
            listen_host=bind_host, listen_port=port, model=request.model_path, port=binding
        )
    writer = _Writer(spelling, ask, given, notes, bare=not model_by_flag(request, rows.container))
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
    notes += _idle_devices(request, rows)
    extra = (word for one in given for word in one.words)
    plan = LaunchPlan(
        kind=request.runtime,
        argv=(*_before(request, rows), *writer.argv, *extra),
        env={
            **rows.env,
            **rows.env_on.get(request.host.accelerator, {}),
            **_limits(request, rows),
            **request.env,
        },
        ports=(place.port,),
        mounts=place.mounts,
        devices=request.devices,
        health=_health(rows, said),
        bind_host=bind_host,
    )
    if in_docker:
        plan = with_image(plan, request, rows.container)
    elif workdir := rows.workdir(request.binary):
        plan = replace(plan, workdir=workdir)
    return Draft(plan, tuple(writer.dropped), tuple(notes))


class _Writer:
    """Collects the words of our own flags, without those that the extra arguments repeat."""

    def __init__(
        self,
        spelling: Spelling,
        ask: Ask,
        given: Iterable[Given],
        notes: list[str],
        *,
        bare: bool,
    ) -> None:
        self.argv: list[str] = []
        self.dropped: list[str] = []
        self._spelling = spelling
        self._ask = ask
        self._overridden = {one.flag for one in given if one.flag}
        self._notes = notes
        self._bare = bare

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
        name = flag.names[0] or ("" if self._bare else flag.names[1])
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
    return not (value == 1 and knob in PARALLELISM)


def _before(request: LaunchRequest, rows: Rows) -> tuple[str, ...]:
    """The words before our flags: in a container those that its entrypoint wants."""
    if request.runtime == "docker":
        return rows.container.command
    program = posixpath.basename(request.binary)
    if rows.module and PYTHON.fullmatch(program):
        return (request.binary, *rows.module)
    return (request.binary, *rows.programs.get(program, rows.command))


def _limits(request: LaunchRequest, rows: Rows) -> dict[str, str]:
    """The engine's own limits, none of them below ours."""
    limit_s = -(-(request.ready_limit_ms or rows.health.ready_deadline_ms) // 1000)
    return {name: str(max(default_s, limit_s)) for name, default_s in rows.ready_env.items()}


def _idle_devices(request: LaunchRequest, rows: Rows) -> Iterable[str]:
    """A note where an engine will leave leased devices unused, which nothing else would tell."""
    if rows.spreads == "all" or len(request.devices) < 2:
        return
    used: int | None = 1
    if rows.spreads == "parallel":
        used = rows.demand(request.options, request.extra_args, request.env).devices
    if used is not None and used < len(request.devices):
        hint = "; tensorParallel says how many" if rows.spreads == "parallel" else ""
        program = rows.spelling.program
        yield f"{len(request.devices)} devices are leased, and {program} will use {used}{hint}"


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


def _inner_note(inner: Iterable[Given], place: Place) -> str:
    flags = " and ".join(dict.fromkeys(one.words[0].partition("=")[0] for one in inner))
    return (
        f"{flags} name the published address: in its container the engine listens on "
        f"{place.listen_host}:{place.listen_port}"
    )
