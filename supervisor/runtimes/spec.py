"""An engine as those see it who find, probe and install runtimes, beside the launch path's view.

The two views are joined by id, and both read the same tables, so that they cannot differ.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from supervisor.contracts.engine import EngineBackend
from supervisor.engines import invocation


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """What tells one backend's installations and processes from the others'."""

    id: EngineBackend
    health_path: str
    """Appended to the base URL."""
    cli_binary: str | None
    """Its name in a venv's ``bin``."""

    def detect_invocation(self, args: Sequence[str]) -> bool:
        """Whether these are the arguments of a process that serves with it."""
        return invocation.detect_invocation(self.id, args)

    def extract_model_path(self, args: Sequence[str]) -> str | None:
        return invocation.extract_model_path(self.id, args)

    def extract_served_model_name(self, args: Sequence[str]) -> str | None:
        return invocation.extract_served_model_name(self.id, args)


_SPECS: Mapping[EngineBackend, EngineSpec] = {
    "vllm": EngineSpec(id="vllm", health_path="/health", cli_binary="vllm"),
    "sglang": EngineSpec(id="sglang", health_path="/health", cli_binary="sglang"),
    "llamacpp": EngineSpec(id="llamacpp", health_path="/health", cli_binary="llama-server"),
    "mlx": EngineSpec(id="mlx", health_path="/health", cli_binary="mlx_lm.server"),
}

ALL_ENGINE_SPECS: tuple[EngineSpec, ...] = tuple(_SPECS.values())
"""In the order in which a process is asked whether it is one of them."""


def get_engine_spec(backend: EngineBackend) -> EngineSpec:
    return _SPECS[backend]


def detect_engine_from_arguments(args: Sequence[str]) -> EngineBackend | None:
    """Which backend a running process belongs to, or ``None``."""
    return next((spec.id for spec in ALL_ENGINE_SPECS if spec.detect_invocation(args)), None)
