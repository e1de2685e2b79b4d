"""From what a client asked for to one complete, consistent order. Pure: nothing is looked up."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
from msgspec import UNSET, UnsetType

from supervisor.contracts.config import Recipe
from supervisor.contracts.engine import (
    AddressOverride,
    DeviceDemand,
    EngineId,
    EngineRuntimeKind,
    ServingOptions,
)
from supervisor.contracts.host import DeviceId
from supervisor.contracts.instance import NAME_PATTERN, LaunchParams
from supervisor.contracts.rpc import LONGEST_MS
from supervisor.engines.registry import engine_spec
from supervisor.lifecycle.errors import InvalidLaunch, NoSuchRecipe
from supervisor.lifecycle.sizes import check_sizes

_NAME = re.compile(NAME_PATTERN)
SHORTEST_DEEP_CHECK_MS = 10_000
"""The pace of the ordinary probes, which a deeper one takes the turn of."""
SHORTEST_STALL_MS = 1_000
"""Logs are looked at four times a second; less would be a matter of luck."""
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A launch with every blank filled in that can be filled in without looking at the host."""

    params: LaunchParams
    """The client's own params over the recipe's: what a restart repeats."""
    name: str
    engine: EngineId
    recipe_id: str
    runtime: EngineRuntimeKind | None
    model_path: str
    served_model_name: str
    options: ServingOptions
    extra_args: tuple[str, ...]
    env: dict[str, str]
    docker_image: str | None
    binary: str | None
    command: tuple[str, ...] | None
    devices: tuple[DeviceId, ...] | None
    need: int
    """How many devices the client names, else the launch's own words ask for."""
    exclusive: bool | None
    memory_bytes: int | None
    port: int | None
    """The explicit one; ``None`` takes one of the pool."""
    last_port: int | None
    """What an earlier launch of it had, to be had again where it is free."""
    bind_host: str
    host_named: bool
    """The launch itself says where to listen."""
    ready_deadline_ms: int | None
    stall_ms: int | None
    ready_cap_ms: int | None


def resolve(
    params: LaunchParams, recipes: Mapping[str, Recipe], *, last_port: int | None = None
) -> Order:
    """Merge a recipe in and check what can be checked here.

    Raises ``InvalidLaunch`` and ``NoSuchRecipe``.
    """
    if not _NAME.fullmatch(params.name):
        raise InvalidLaunch(
            f"{params.name[:80]!r} is no instance name: letters, digits and . _ - "
            "(the first one a letter or digit), at most 63"
        )
    recipe_name = params.recipe or None
    params = with_recipe(params, recipes)
    check_sizes(params)
    if params.engine is UNSET:
        raise InvalidLaunch("an engine is required (or a recipe that names one)")
    if params.model_path is UNSET:
        raise InvalidLaunch("a model path is required (or a recipe that names one)")
    _check_text(params, params.model_path)
    _check_not_there_yet(params)
    _check_amounts(params)
    _check_deadline(params)
    options = params.options or ServingOptions()
    _check_options(options)
    env = dict(params.env or {})
    said = (*(params.extra_args or ()), *(params.command or ())[1:])
    address = _address(params.engine, said, env)
    return Order(
        params=params,
        name=params.name,
        engine=params.engine,
        recipe_id=recipe_name or params.name,
        runtime=params.runtime or None,
        model_path=params.model_path,
        served_model_name=params.served_model_name or params.name,
        options=options,
        extra_args=params.extra_args or (),
        env=env,
        docker_image=params.docker_image or None,
        binary=params.binary or None,
        command=params.command or None,
        devices=params.devices or None,
        need=needed(params, _demand(params.engine, options, said, env)),
        exclusive=None if params.exclusive is UNSET else params.exclusive,
        memory_bytes=params.memory_bytes or None,
        port=_port(params, address),
        last_port=last_port,
        bind_host=address.host or "127.0.0.1",
        host_named=address.host is not None,
        ready_deadline_ms=params.ready_deadline_ms or None,
        stall_ms=params.stall_ms or None,
        ready_cap_ms=params.ready_cap_ms or None,
    )


def with_recipe(params: LaunchParams, recipes: Mapping[str, Recipe]) -> LaunchParams:
    """The params over those of the recipe that they name. Raises ``NoSuchRecipe``."""
    if params.recipe is UNSET:
        return params
    recipe = recipes.get(params.recipe)
    if recipe is None:
        known = ", ".join(sorted(recipes)) or "none"
        raise NoSuchRecipe(f"no recipe {params.recipe!r} in the config (there are: {known})")
    base = msgspec.structs.asdict(recipe)
    del base["autostart"]
    own = msgspec.structs.asdict(params)
    merged = base | {key: value for key, value in own.items() if value is not UNSET}
    merged["options"] = _merged_options(recipe, params)
    merged["recipe"] = UNSET  # the record keeps what was launched, whatever the config says later
    return LaunchParams(**merged)


def _merged_options(recipe: Recipe, params: LaunchParams) -> ServingOptions | UnsetType:
    if recipe.options is UNSET:
        return params.options
    base = msgspec.structs.asdict(recipe.options)
    own = {} if params.options is UNSET else msgspec.structs.asdict(params.options)
    return ServingOptions(**base | {k: v for k, v in own.items() if v is not UNSET})


def _check_text(params: LaunchParams, model_path: str) -> None:
    if not model_path.startswith("/"):
        raise InvalidLaunch(f"the model path must be absolute, not {model_path!r}")
    single = (params.docker_image, params.binary, params.served_model_name)
    words = [model_path, *(it for it in single if it), *(params.extra_args or ())]
    words += params.command or ()
    words += [params.served_model_name or "", params.binary or ""]
    words += list((params.env or {}).values())
    if any("\0" in word for word in words):
        raise InvalidLaunch("a NUL byte cannot be passed to a program")
    for name in params.env or {}:
        if not _ENV_NAME.fullmatch(name):
            raise InvalidLaunch(f"{name!r} is no name of an environment variable")
    if params.command is not UNSET and not (params.command and params.command[0]):
        raise InvalidLaunch("the command is empty")
    if params.binary and not params.binary.startswith("/") and "/" in params.binary:
        raise InvalidLaunch(
            f"the binary must be an absolute path or a bare name, not {params.binary!r}"
        )


def _check_not_there_yet(params: LaunchParams) -> None:
    """Refuse what a later version will do, rather than accept it and do something else."""
    if params.install is not UNSET:
        raise InvalidLaunch("install is not supported yet: install the engine by hand")


def _check_amounts(params: LaunchParams) -> None:
    amounts = {"readyDeadlineMs": params.ready_deadline_ms, "memoryBytes": params.memory_bytes}
    for name, amount in amounts.items():
        if amount is not UNSET and amount < 1:
            raise InvalidLaunch(f"{name} must be at least 1")
    times = {
        "readyDeadlineMs": params.ready_deadline_ms,
        "stallMs": params.stall_ms,
        "readyCapMs": params.ready_cap_ms,
        "deepCheckMs": params.deep_check_ms,
    }
    for name, time_ms in times.items():
        if time_ms is not UNSET and time_ms > LONGEST_MS:
            raise InvalidLaunch(f"{name} must be at most {LONGEST_MS}, which is 30 days")


def _check_deadline(params: LaunchParams) -> None:
    if params.deep_check_ms is not UNSET and params.deep_check_ms < SHORTEST_DEEP_CHECK_MS:
        raise InvalidLaunch(f"deepCheckMs must be at least {SHORTEST_DEEP_CHECK_MS}")
    if params.stall_ms is UNSET:
        if params.ready_cap_ms is not UNSET:
            raise InvalidLaunch("readyCapMs bounds a deadline that moves: give stallMs as well")
        return
    if params.stall_ms < SHORTEST_STALL_MS:
        raise InvalidLaunch(f"stallMs must be at least {SHORTEST_STALL_MS}")
    if params.ready_cap_ms is not UNSET and params.ready_cap_ms < (params.ready_deadline_ms or 1):
        raise InvalidLaunch("readyCapMs must not be below readyDeadlineMs")


def _check_options(options: ServingOptions) -> None:
    counts = {
        "tensorParallel": options.tensor_parallel,
        "pipelineParallel": options.pipeline_parallel,
        "maxContextLength": options.max_context_length,
        "maxConcurrentRequests": options.max_concurrent_requests,
    }
    for name, value in counts.items():
        if value is not UNSET and value < 1:
            raise InvalidLaunch(f"options.{name} must be at least 1")
    fraction = options.memory_fraction
    if fraction is not UNSET and not 0 < fraction <= 1:
        raise InvalidLaunch("options.memoryFraction must be above 0 and at most 1")


def needed(params: LaunchParams, asked: DeviceDemand) -> int:
    """How many devices to lease: as many as are named, else as many as the launch's words ask for.

    Raises ``InvalidLaunch`` where it names fewer than it asks for.
    """
    named = None if params.devices is UNSET else params.devices
    count = None if params.device_count is UNSET else params.device_count
    if count is not None and count < 1:
        raise InvalidLaunch("deviceCount must be at least 1")
    if named is not None and not named:
        raise InvalidLaunch("devices is empty; leave it out to have them chosen")
    if named is not None and len(set(named)) != len(named):
        raise InvalidLaunch("devices names one device twice")
    if named is not None and count is not None and count != len(named):
        raise InvalidLaunch(f"deviceCount is {count}, but devices names {len(named)}")
    chosen = len(named) if named is not None else count
    wanted = asked.devices or 1
    if chosen is None:
        return wanted
    if named is not None and all(device.startswith("cpu:") for device in named):
        return chosen  # an engine on the CPU spreads over its cores
    if chosen < wanted:
        words = f" ({', '.join(asked.words)})" if asked.words else ""
        how = "devices names" if named is not None else "deviceCount is"
        raise InvalidLaunch(
            f"the launch's own words ask for {wanted} devices{words}, but {how} {chosen}; "
            f"name {wanted} of them, or leave devices and deviceCount out to have {wanted} chosen"
        )
    return chosen


def _demand(
    engine: EngineId, options: ServingOptions, said: tuple[str, ...], env: Mapping[str, str]
) -> DeviceDemand:
    spec = engine_spec(engine)
    return DeviceDemand() if spec is None else spec.demand(options, said, env, ())


def _address(
    engine: EngineId, extra_args: tuple[str, ...], env: Mapping[str, str]
) -> AddressOverride:
    spec = engine_spec(engine)
    address = AddressOverride() if spec is None else spec.address(extra_args, env)
    if address.problem:
        raise InvalidLaunch(address.problem)
    return address


def _port(params: LaunchParams, address: AddressOverride) -> int | None:
    explicit = None if params.port is UNSET else params.port
    if explicit is not None and not 1 <= explicit <= 65_535:
        raise InvalidLaunch(f"port {explicit} is not between 1 and 65535")
    if explicit is not None and address.port is not None and explicit != address.port:
        raise InvalidLaunch(
            f"port is {explicit}, but the extra arguments or the environment say {address.port}"
        )
    return explicit if address.port is None else address.port
