"""What an engine is asked to run, and what it answers: the launch request and the launch plan."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from msgspec import UNSET, UnsetType, field

from supervisor.contracts._base import Fact, Wire
from supervisor.contracts.host import DeviceId, HostProfile

EngineId = Literal["vllm", "sglang", "llamacpp", "mlx", "exllamav3"]
ENGINE_IDS: tuple[EngineId, ...] = ("vllm", "sglang", "llamacpp", "mlx", "exllamav3")

EngineBackend = Literal["vllm", "sglang", "llamacpp", "mlx"]
"""The engines whose runtimes can be managed; narrower than ``EngineId`` for now."""

EngineRuntimeKind = Literal["process", "docker"]
"""How a job runs; how an engine was *installed* is another word, ``RuntimeKind``."""

CanonicalMetric = Literal[
    "requestsRunning",
    "requestsWaiting",
    "kvCacheUtilization",
    "promptTokensTotal",
    "generationTokensTotal",
]

MetricMap = Mapping[CanonicalMetric, tuple[str, ...]]
"""A canonical metric to the Prometheus names that may carry it, the first present one wins."""


class EngineSupport(Fact, frozen=True, kw_only=True):
    """Whether an engine runs on a host. The seed's union of two, told apart by ``ok``.

    msgspec tags unions by strings or integers only, so the two shapes share one struct that
    refuses to be built as anything else than one of them.
    """

    ok: bool
    runtimes: tuple[EngineRuntimeKind, ...] | UnsetType = UNSET
    """With ``ok``: the ways it runs, the preferred one first."""
    reason: str | UnsetType = UNSET
    """Without ``ok``: names the fact of the host that decides."""
    needs: str | UnsetType = UNSET
    """With ``ok``: which build of the engine this host's processes need, for people."""
    without: dict[EngineRuntimeKind, str] | UnsetType = UNSET
    """With ``ok``: the ways it does not run here, each with the deciding fact."""

    def __post_init__(self) -> None:
        if self.ok == (self.runtimes is UNSET) or self.ok != (self.reason is UNSET):
            raise ValueError("a supported engine has runtimes, an unsupported one a reason")

    @classmethod
    def supported(cls, *runtimes: EngineRuntimeKind) -> "EngineSupport":
        return cls(ok=True, runtimes=runtimes)

    @classmethod
    def unsupported(cls, reason: str) -> "EngineSupport":
        return cls(ok=False, reason=reason)


class ReadyRequest(Fact, frozen=True, kw_only=True):
    """A request that proves readiness where an engine's health path answers too early."""

    method: str
    path: str
    body: str


class HealthCheck(Fact, frozen=True, kw_only=True):
    """How to ask an engine whether it is ready, and how long it may take to become so."""

    path: str
    ready_deadline_ms: int
    """From the write of the handle to the verdict; a cold start may compile for minutes."""
    interval_ms: int
    """The slowest pace of polling while the engine loads."""
    timeout_ms: int | UnsetType = UNSET
    """One probe's own limit, where an engine's health path itself takes long."""
    unhealthy_after: int | UnsetType = UNSET
    """Consecutive misses after ready that make an instance unhealthy (default 3)."""
    ready: ReadyRequest | UnsetType = UNSET
    deep: ReadyRequest | UnsetType = UNSET
    """Makes a ready engine do a little of its real work; asked only where a launch wants it."""


class PortBinding(Fact, frozen=True, kw_only=True):
    """A port inside (the engine's own view) and the host's port that leads to it."""

    container: int
    host: int


class Mount(Fact, frozen=True, kw_only=True):
    """What a container sees at ``to``: a path of the host, or a volume of the container engine.

    ``from`` is a path where it begins with a slash, else a volume's name. Volumes hold caches that
    outlive their container (compiled kernels, downloads), and are made where there is none yet.
    """

    from_: str = field(name="from")
    to: str
    read_only: bool


class DeviceRequest(Fact, frozen=True, kw_only=True):
    """Devices that a container asks its engine for, by id; the count goes unset beside ids."""

    driver: str
    """``""`` leaves the choice to the capabilities; ``"cdi"`` takes qualified CDI names as ids."""
    device_ids: tuple[str, ...]
    capabilities: tuple[tuple[str, ...], ...] = ()
    """Any one of these sets, all of its members; empty for CDI."""


class LaunchPlan(Fact, frozen=True, kw_only=True):
    """What to run. An engine makes it, a launcher decides how.

    ``devices`` stays abstract here: the variables and flags that select them are written by
    ``apply_devices`` alone, once, for every engine.
    """

    kind: EngineRuntimeKind
    argv: tuple[str, ...]
    """process: ``[binary, *args]``; docker: what follows the image's entrypoint."""
    env: dict[str, str]
    ports: tuple[PortBinding, ...]
    mounts: tuple[Mount, ...]
    devices: tuple[DeviceId, ...]
    health: HealthCheck
    image: str | UnsetType = UNSET
    workdir: str | UnsetType = UNSET
    bind_host: str | UnsetType = UNSET
    """The address the engine listens on, which the readiness probe must derive its own from."""
    """In a container: the host's address at which the port is published."""
    shm_bytes: int | UnsetType = UNSET
    """Size of a container's ``/dev/shm``."""
    ulimits: dict[str, int] | UnsetType = UNSET
    """Of a container, soft and hard alike; -1 is unlimited."""
    groups: tuple[int, ...] | UnsetType = UNSET
    """Numeric, for a name would be looked up inside the image, which may not have it."""
    device_requests: tuple[DeviceRequest, ...] | UnsetType = UNSET
    """Like the two below written by ``apply_devices``, for containers alone."""
    device_nodes: tuple[str, ...] | UnsetType = UNSET
    """Device files of the host, or folders of them, that lie at the same path inside."""
    security_opts: tuple[str, ...] | UnsetType = UNSET
    """In the container engine's own words, such as ``seccomp=unconfined`` for ROCm."""


class ServingOptions(Wire, frozen=True, kw_only=True):
    """The tuning knobs of a launch, named once; each engine's spelling table says how it says them.

    Every member is optional: one that is not given means the engine's own default and emits
    nothing. ``None`` and ``"auto"`` mean the same where the engine knows no ``auto`` of its own.
    """

    tensor_parallel: int | UnsetType = UNSET
    pipeline_parallel: int | UnsetType = UNSET
    max_context_length: int | UnsetType = UNSET
    """Tokens one request may span."""
    memory_fraction: float | UnsetType = UNSET
    """Of a device's memory, 0 to 1."""
    max_concurrent_requests: int | UnsetType = UNSET
    kv_cache_dtype: str | None | UnsetType = UNSET
    dtype: str | None | UnsetType = UNSET
    quantization: str | None | UnsetType = UNSET
    trust_remote_code: bool | UnsetType = UNSET
    tool_call_parser: str | None | UnsetType = UNSET
    reasoning_parser: str | None | UnsetType = UNSET


class LaunchRequest(Fact, frozen=True, kw_only=True):
    """Everything a plan depends on. There is nothing else: a plan reads no clock, file or env."""

    engine: EngineId
    host: HostProfile
    runtime: EngineRuntimeKind
    devices: tuple[DeviceId, ...]
    port: int
    model_path: str
    """Absolute: the model directory, or the ``.gguf`` file for llama.cpp."""
    served_model_name: str
    options: ServingOptions
    extra_args: tuple[str, ...]
    """Verbatim, appended last; any flag of ours that they repeat is dropped."""
    env: dict[str, str]
    docker_image: str | None
    binary: str
    """The resolved executable; not used by docker."""
    ready_limit_ms: int | UnsetType = UNSET
    """The longest that readiness may take here, where it is not the engine's usual deadline. An
    engine's own limits are raised with it."""
    host_network: bool = False
    """A container that shares the host's network, where no port is published for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanNotes:
    """What a planner gave up on the way to a plan, for people: ``engine.plan`` shows it."""

    dropped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StopStyle:
    """How an engine wants to be asked to leave."""

    grace_ms: int = 20_000
    """From the first TERM to the KILL of the whole tree."""
    second_term_after_ms: int | None = None
    """A second TERM to the leader, for engines that otherwise wait for their clients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressOverride:
    """What extra args and env say about where the engine listens; ``None``: they say nothing."""

    host: str | None = None
    port: int | None = None
    problem: str | None = None
    """Why they contradict themselves or name no valid port; such a launch is invalid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceDemand:
    """How many devices of this host a launch's options, extra args and env ask for."""

    devices: int | None = 1
    """``None`` where something else chooses them, on whatever host."""
    words: tuple[str, ...] = ()
    """The flags and variables that say so, as they were written; none where only options do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeEngineSpec:
    """An engine as the launch path sees it. Every function here is pure and total."""

    id: EngineId
    supports: Callable[[HostProfile], EngineSupport]
    plan: Callable[[LaunchRequest], LaunchPlan]
    explain: Callable[[LaunchRequest], PlanNotes]
    """What ``plan`` drops from the same request, and why."""
    health: HealthCheck
    metrics: MetricMap
    default_binary: str
    default_port: int
    address: Callable[[Sequence[str], Mapping[str, str]], AddressOverride]
    """Reads the effective host and port out of extra args and env."""
    demand: Callable[
        [ServingOptions, Sequence[str], Mapping[str, str], Sequence[str]], DeviceDemand
    ]
    """Reads the number of devices out of options, extra args, env, and the words that the engine's
    own configuration file comes to."""
    config: Callable[[Sequence[str]], str | None] = lambda _: None
    """Which file that is, by the extra args."""
    device_ids_since: str | None = None
    """The first version that takes device ids in its masks; older ones take numbers alone."""
    image: Callable[[HostProfile], str | None] | None = None
    stop: StopStyle = StopStyle()
    install_hint: str = ""
    """The command that brings the engine, named when its binary is missing."""
