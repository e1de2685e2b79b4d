"""The configuration file: its types, and the strict decoding of its text. TOML, kebab-case."""

import re
import tomllib
from difflib import get_close_matches
from ipaddress import ip_address
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from supervisor.contracts.engine import EngineId, EngineRuntimeKind
from supervisor.contracts.host import Accelerator, DeviceId
from supervisor.contracts.instance import NAME_PATTERN, RestartPolicy
from supervisor.contracts.rpc import LONGEST_MS


class ConfigError(ValueError):
    """The file cannot be used; the text names the key by its path, such as ``recipes.x.port``."""


class _Table(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="kebab",
    forbid_unknown_fields=True,
):
    """A table of the file. A key that it does not know is an error, not a comment."""


class RecipeOptions(_Table, frozen=True, kw_only=True):
    """``ServingOptions`` in the file's spelling."""

    tensor_parallel: int | UnsetType = UNSET
    pipeline_parallel: int | UnsetType = UNSET
    max_context_length: int | UnsetType = UNSET
    memory_fraction: float | UnsetType = UNSET
    max_concurrent_requests: int | UnsetType = UNSET
    kv_cache_dtype: str | UnsetType = UNSET
    dtype: str | UnsetType = UNSET
    quantization: str | UnsetType = UNSET
    trust_remote_code: bool | UnsetType = UNSET
    tool_call_parser: str | UnsetType = UNSET
    reasoning_parser: str | UnsetType = UNSET


class Recipe(_Table, frozen=True, kw_only=True):
    """A named launch: the same members as a launch's params, without its name."""

    engine: EngineId
    model_path: str
    runtime: EngineRuntimeKind | UnsetType = UNSET
    device_count: int | UnsetType = UNSET
    devices: tuple[DeviceId, ...] | UnsetType = UNSET
    exclusive: bool | UnsetType = UNSET
    memory_bytes: int | UnsetType = UNSET
    port: int | UnsetType = UNSET
    served_model_name: str | UnsetType = UNSET
    options: RecipeOptions | UnsetType = UNSET
    extra_args: tuple[str, ...] | UnsetType = UNSET
    env: dict[str, str] | UnsetType = UNSET
    docker_image: str | UnsetType = UNSET
    binary: str | UnsetType = UNSET
    command: tuple[str, ...] | UnsetType = UNSET
    restart: RestartPolicy | UnsetType = UNSET
    ready_deadline_ms: int | UnsetType = UNSET
    deep_check_ms: int | UnsetType = UNSET
    """Makes the ready engine answer a tiny request this often, its queue included."""
    stall_ms: int | UnsetType = UNSET
    ready_cap_ms: int | UnsetType = UNSET
    autostart: bool = False
    """Launched, under the recipe's own name, whenever the daemon starts and it is not there."""


class PortsConfig(_Table, frozen=True, kw_only=True):
    """The pool that automatic ports come from; it lies outside the kernel's ephemeral range."""

    first: int = 21_000
    last: int = 21_999


class RestartConfig(_Table, frozen=True, kw_only=True):
    """How instances with a restart policy come back. Times in milliseconds."""

    initial_ms: int = 1_000
    """The first pause; each next one is twice as long."""
    max_ms: int = 60_000
    jitter: float = 0.1
    """The part of a pause by which chance may stretch it, so that a host's engines spread out."""
    stable_ms: int = 60_000
    """Ready for this long, an instance has recovered: the count starts again."""
    max_attempts: int = 10
    """Attempts in a row without a stable period, the first one included; then it gives up."""
    breaker_failures: int = 5
    """Failures in a row at which the breaker opens, for a pause long enough to look into it."""
    breaker_ms: int = 300_000
    unhealthy_ms: int = 0
    """Unhealthy for this long after ready, an instance is restarted; 0 never does."""


class TrustedArgs(_Table, frozen=True, kw_only=True):
    """Flags of an engine that may be said besides those that are known to be harmless."""

    vllm: tuple[str, ...] = ()
    sglang: tuple[str, ...] = ()
    llamacpp: tuple[str, ...] = ()
    mlx: tuple[str, ...] = ()
    exllamav3: tuple[str, ...] = ()


class AccessConfig(_Table, frozen=True, kw_only=True):
    """Who may do what on the socket, by uid. The daemon's own uid and root are always admin."""

    read: tuple[int, ...] = ()
    operate: tuple[int, ...] = ()
    admin: tuple[int, ...] = ()
    socket_mode: Literal["0600", "0660", "0666"] = "0600"
    # What others than admins may launch, or ask a plan of. What a recipe says is an admin's word.
    recipes: tuple[str, ...] | UnsetType = UNSET
    """Nothing but these; left out, every recipe, and launches without one."""
    model_roots: tuple[str, ...] = ()
    """Directories below which their models lie, links followed."""
    binaries: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    """Of containers, by name or pattern."""
    env: tuple[str, ...] = ()
    """Variables, by name or pattern, besides those that are known to be harmless."""
    args: TrustedArgs = TrustedArgs()


class StaticDevice(_Table, frozen=True, kw_only=True):
    """A device that no probe sees. It counts as a probed one."""

    id: DeviceId
    accelerator: Accelerator
    memory_bytes: int | UnsetType = UNSET
    name: str | UnsetType = UNSET


ForeignPolicy = Literal["avoid", "refuse", "allow"]
"""What a device is to us that a process of somebody else computes on: had by name only, had by
nobody, or like any other.
"""


class DevicesConfig(_Table, frozen=True, kw_only=True):
    static: tuple[StaticDevice, ...] = ()
    probe: Literal["auto", "off"] = "auto"
    """Whether vendors' drivers are asked at all; ``off`` leaves the declared ones and the CPU."""
    foreign: ForeignPolicy = "avoid"
    fit: Literal["warn", "refuse", "off"] = "warn"
    """What to do about a launch that by estimate will not fit its devices."""


class LogsConfig(_Table, frozen=True, kw_only=True):
    """How large the log of one attempt of an engine may grow."""

    max_bytes: int = 64 << 20
    """Of the file that the engine writes to. What is more goes into archives beside it."""
    archives: int = 4


class DockerConfig(_Table, frozen=True, kw_only=True):
    """Engines in containers: where the container engine is, and how it is to run them."""

    socket: str | UnsetType = UNSET
    """A path (Podman's Docker-compatible one too); left out, DOCKER_HOST or the usual one."""
    pull: Literal["missing", "always", "never"] = "missing"
    pull_timeout_ms: int = 3_600_000
    """For one image. An engine's own deadline begins when its container is there."""
    network: Literal["bridge", "host"] = "bridge"
    """``bridge`` publishes the engine's port; with ``host`` it listens on the host itself."""
    publish: str = "127.0.0.1"
    """The host's address at which ports are published, unless a launch names one."""
    log_max_bytes: int = 32 << 20
    """Of one file of the container engine's own log; ours has its bounds under [logs]."""
    log_files: int = 3


class EnginesConfig(_Table, frozen=True, kw_only=True):
    """Where an engine's program is, when it is not the one on PATH."""

    vllm: str | UnsetType = UNSET
    sglang: str | UnsetType = UNSET
    llamacpp: str | UnsetType = UNSET
    mlx: str | UnsetType = UNSET
    exllamav3: str | UnsetType = UNSET


class Config(_Table, frozen=True, kw_only=True):
    """The whole file. Every key has a default: no file at all is a valid configuration."""

    socket: str | UnsetType = UNSET
    state_dir: str | UnsetType = UNSET
    log_dir: str | UnsetType = UNSET
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    tombstones: int = 200
    """Ended instances that are remembered."""
    cgroups: Literal["auto", "off"] = "auto"
    """A cgroup v2 for each engine, where they are ours to make."""
    ports: PortsConfig = PortsConfig()
    restart: RestartConfig = RestartConfig()
    access: AccessConfig = AccessConfig()
    devices: DevicesConfig = DevicesConfig()
    engines: EnginesConfig = EnginesConfig()
    logs: LogsConfig = LogsConfig()
    docker: DockerConfig = DockerConfig()
    recipes: dict[str, Recipe] = {}


T = TypeVar("T")


def parse_config(text: str) -> Config:
    """Decode a configuration file.

    Raises ``ConfigError`` naming the offending key's path, for text that is not TOML, a key that
    is not known, a value of the wrong type, or values that contradict each other; and nothing
    else, for the daemon reads this while it runs.
    """
    try:
        tree = tomllib.loads(text)
    except ValueError as error:  # an integer that is too long is one, and no TOMLDecodeError
        raise ConfigError(f"not valid TOML: {error}") from None
    except RecursionError:
        raise ConfigError("not valid TOML: it is nested too deeply") from None
    _refuse_nul(tree, "")
    recipes = tree.pop("recipes", {})
    if not isinstance(recipes, dict):
        raise ConfigError("recipes: expected a table of recipes")
    config = _convert(tree, Config, "")
    named = {name: _convert(value, Recipe, f"recipes.{name}") for name, value in recipes.items()}
    config = msgspec.structs.replace(config, recipes=named)
    _check(config)
    return config


def _convert(value: Any, wanted: type[T], path: str) -> T:
    try:
        return msgspec.convert(value, wanted)
    except msgspec.ValidationError as error:
        text, _, where = str(error).partition(" - at `$")
        inner = _named(value, where.rstrip("`").lstrip("."))
        if "unknown field" in text:
            key = text.split("`")[1]
            inner = f"{inner}.{key}" if inner else key
            text = f"no such key{_nearest(key)}"
        elif "missing required field" in text:
            text = f"required key `{text.split('`')[1]}` is missing"
        full = ".".join(part for part in (path, inner) if part)
        raise ConfigError(f"{full or 'the file'}: {text}") from None


def _refuse_nul(value: Any, path: str) -> None:
    """No path, word or name of a system can hold one. The parser has bounded the depth."""
    if isinstance(value, str) and "\0" in value:
        raise ConfigError(f"{path}: a NUL character is of no use here")
    if isinstance(value, list):
        for number, item in enumerate(value):
            _refuse_nul(item, f"{path}[{number}]")
    if isinstance(value, dict):
        for key, item in value.items():
            shown = key.replace("\0", "\\0")
            inner = f"{path}.{shown}" if path else shown
            _refuse_nul(key, inner)
            _refuse_nul(item, inner)


def _nearest(key: str) -> str:
    tables = _Table.__subclasses__()
    known = [field.encode_name for table in tables for field in msgspec.structs.fields(table)]
    near = get_close_matches(key, known, 1)
    return f"; did you mean `{near[0]}`?" if near else ""


def _named(value: Any, path: str) -> str:
    """The path with the key of a map in it, which msgspec leaves out. Our maps are of strings."""
    above, ends_in_map, _ = path.partition("[...]")
    if not ends_in_map:
        return path
    for name in above.split("."):
        value = value[name]
    wrong = next((key for key in value if not isinstance(value[key], str)), "*")
    return f"{above}.{wrong}"


def _check(config: Config) -> None:
    ports = config.ports
    if not 1 <= ports.first <= ports.last <= 65_535:
        raise ConfigError("ports: first and last must be 1 to 65535, first no greater than last")
    if config.tombstones < 0:
        raise ConfigError("tombstones: cannot be negative")
    restart = config.restart
    if restart.initial_ms < 1 or restart.max_ms < restart.initial_ms:
        raise ConfigError("restart: initial-ms must be at least 1, and max-ms no less than it")
    if restart.max_attempts < 1 or restart.breaker_failures < 1:
        raise ConfigError("restart: max-attempts and breaker-failures must be at least 1")
    if not 0 <= restart.jitter <= 1:
        raise ConfigError("restart.jitter: must be between 0 and 1")
    times = (restart.max_ms, restart.stable_ms, restart.breaker_ms, restart.unhealthy_ms)
    if min(times) < 0 or max(times) > LONGEST_MS:
        raise ConfigError(f"restart: times must be from 0 to {LONGEST_MS} ms")
    if config.logs.max_bytes < 1 << 20 or not 1 <= config.logs.archives <= 100:
        raise ConfigError("logs: max-bytes must be at least 1048576, and archives 1 to 100")
    for root in config.access.model_roots:
        if not root.startswith("/"):
            raise ConfigError(f"access.model-roots: {root!r} is no absolute path")
    docker = config.docker
    if docker.pull_timeout_ms < 1 or docker.log_max_bytes < 1 << 16 or docker.log_files < 1:
        raise ConfigError(
            "docker: pull-timeout-ms and log-files must be at least 1, log-max-bytes 65536"
        )
    if docker.socket is not UNSET and not docker.socket.removeprefix("unix://").startswith("/"):
        raise ConfigError("docker.socket: must be the absolute path of a Unix socket")
    try:
        ip_address(docker.publish)
    except ValueError:
        raise ConfigError(f"docker.publish: {docker.publish!r} is no IP address") from None
    for name, recipe in config.recipes.items():
        _check_recipe(f"recipes.{name}", recipe)
        if recipe.autostart and not re.fullmatch(NAME_PATTERN, name):
            raise ConfigError(
                f"recipes.{name}: autostart launches it under its own name, which no instance can "
                "have: letters, digits and . _ - (the first one a letter or digit), at most 63"
            )
    seen: set[str] = set()
    for device in config.devices.static:
        if device.id in seen:
            raise ConfigError(f"devices.static: {device.id!r} is there twice")
        seen.add(device.id)


def _check_recipe(path: str, recipe: Recipe) -> None:
    """What no launch of it could pass, whatever it says besides."""
    if not recipe.model_path.startswith("/"):
        raise ConfigError(f"{path}.model-path: must be absolute, not {recipe.model_path!r}")
    if recipe.port is not UNSET and not 1 <= recipe.port <= 65_535:
        raise ConfigError(f"{path}.port: must be 1 to 65535")
    amounts = {
        "device-count": recipe.device_count,
        "memory-bytes": recipe.memory_bytes,
        "ready-deadline-ms": recipe.ready_deadline_ms,
    }
    for key, amount in amounts.items():
        if amount is not UNSET and amount < 1:
            raise ConfigError(f"{path}.{key}: must be at least 1")
