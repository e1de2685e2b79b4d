"""The golden files that are made by rule: where an engine runs, each knob, each way to override.

What is asked for and where it must land in the engine's own parser is written by hand, in the
engine's sheet (``sheets.py``), and independently of the tables under test.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from supervisor.contracts.engine import EngineId
from tests.engines.requests import GPU_A, GPU_B, HOSTS

PREFIXES = ("on-", "knob-", "over-")

Lands = Mapping[str, Any]
"""Names and values of the engine's own parser; all that it is not told stays at its default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """Knobs, extra arguments that say some of them again, and what must come of both."""

    options: Mapping[str, Any] = field(default_factory=dict)
    extra: tuple[str, ...]
    lands: Lands


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """One engine's part of the matrix."""

    hosts: tuple[str, ...]
    """Where it runs as a process, by names of ``HOSTS``."""
    docker: tuple[str, ...] = ()
    """Where it runs in a container."""
    always: Lands
    """What every process of it is told."""
    inside: Lands = field(default_factory=dict)
    """What is another thing in a container."""
    knobs: Mapping[str, tuple[Mapping[str, Any], Lands]]
    """A name, the options, and what they must come to."""
    every: tuple[Mapping[str, Any], Lands]
    """All of the knobs at once."""
    overrides: Mapping[str, Override]


def cases(sheet: Sheet) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each case's name with what is given and what it must come to."""
    two = {"devices": [GPU_A, GPU_B]}
    for host in sheet.hosts:
        yield from _places(sheet, host, {}, sheet.always)
    for host in sheet.docker:
        inside = {**sheet.always, **sheet.inside}
        yield from _places(sheet, host, {"runtime": "docker"}, inside)
    for name, (options, lands) in sheet.knobs.items():
        devices = two if {"tensorParallel", "pipelineParallel"} & options.keys() else {}
        yield f"knob-{name}", _case({"options": options, **devices}, sheet.always, lands)
    for name, over in sheet.overrides.items():
        options = {"options": over.options} if over.options else {}
        yield f"over-{name}", _case({**options, "extraArgs": over.extra}, sheet.always, over.lands)


def _places(
    sheet: Sheet, host: str, runtime: Mapping[str, Any], lands: Lands
) -> Iterator[tuple[str, dict[str, Any]]]:
    name = f"on-{host}-{runtime['runtime']}" if runtime else f"on-{host}"
    yield name, _case({**HOSTS[host], **runtime}, lands, {})
    options, told = sheet.every
    yield f"{name}-every-knob", _case({**HOSTS[host], **runtime, "options": options}, lands, told)


def _case(given: Mapping[str, Any], always: Lands, lands: Lands) -> dict[str, Any]:
    plain = dict(given)
    if "extraArgs" in plain:
        plain["extraArgs"] = list(plain["extraArgs"])
    return {"given": plain, "lands": {**always, **lands}}


def matrix(sheets: Mapping[EngineId, Sheet]) -> dict[EngineId, dict[str, dict[str, Any]]]:
    """All cases of all engines."""
    return {engine: dict(cases(sheet)) for engine, sheet in sheets.items()}
