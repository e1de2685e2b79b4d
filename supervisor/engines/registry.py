"""The engines there are. A new one is one new file and one line here."""

from collections.abc import Mapping

from supervisor.contracts.engine import (
    ENGINE_IDS,
    ComputeEngineSpec,
    EngineId,
    EngineSupport,
)
from supervisor.contracts.host import HostProfile
from supervisor.engines import exllamav3, llamacpp, mlx, sglang, vllm
from supervisor.engines.spelling import Spelling

_MODULES = (vllm, sglang, llamacpp, mlx, exllamav3)
_SPECS = {module.SPEC.id: module.SPEC for module in _MODULES}

ENGINES: Mapping[EngineId, ComputeEngineSpec] = {
    engine: _SPECS[engine] for engine in ENGINE_IDS if engine in _SPECS
}
"""In the contract's order."""


SPELLINGS: Mapping[EngineId, Spelling] = {it.SPEC.id: it.SPELLING for it in _MODULES}


def engine_spec(engine: EngineId) -> ComputeEngineSpec | None:
    """The engine, or ``None`` for one that this version knows by name only."""
    return ENGINES.get(engine)


def support_of(engine: EngineId, host: HostProfile) -> EngineSupport:
    """Whether ``engine`` runs on ``host``; an answer for every engine of the contract."""
    if spec := engine_spec(engine):
        return spec.supports(host)
    return EngineSupport.unsupported(f"this version cannot launch {engine} yet")
