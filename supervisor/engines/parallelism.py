"""Over how many devices an engine will spread, read out of everything that a launch says.

A lease of fewer would start an engine that ends in an error far from its cause, or that takes the
devices of others where no mask holds it. Whatever is no plain number is left to the engine.
"""

import re
from collections.abc import Mapping, Sequence
from math import prod

from supervisor.contracts.engine import DeviceDemand, ServingOptions
from supervisor.engines.override import Given, read, variables
from supervisor.engines.spelling import Flag, Knob, Says, Spelling

PARALLELISM: tuple[Knob, ...] = ("tensor_parallel", "pipeline_parallel")

_COUNT = re.compile(r"\s*\+?[0-9](?:_?[0-9]){0,3}\s*")
"""As Python's ``int`` reads it, by which the engines' own parsers do."""
_BETWEEN = re.compile(r"[,/]")
_NO_DEVICE = frozenset({"", "none", "auto", "cpu"})


def demand(
    spelling: Spelling,
    options: ServingOptions,
    extra_args: Sequence[str],
    env: Mapping[str, str],
    config: Sequence[str] = (),
) -> DeviceDemand:
    """How many devices of this host the launch's own words ask for; 1 where they do not say.

    ``config`` are the words of the engine's own configuration file. The extra arguments beat the
    options, and those beat the file and the variables, as they will on the command line.
    """
    below = _variables(spelling, env) | _words(spelling, config)
    above = _words(spelling, extra_args)
    given = below | above
    said: list[Given] = []

    def number(flag: Flag | None) -> int | None:
        one = given.get(flag) if flag else None
        if one is None or one.value is None or not _COUNT.fullmatch(one.value):
            return None
        said.append(one)
        return int(one.value)

    spread = spelling.spread
    if any(flag in given and given[flag].value == it for flag, it in spread.elsewhere.items()):
        return DeviceDemand(devices=None)
    degrees = []
    for knob in PARALLELISM:
        option = getattr(options, knob) or None
        flag = _flag(spelling, knob)
        own = number(flag) if flag in above or option is None else None
        degrees.append(option or 1 if own is None else own)
    degrees += [number(flag) or 1 for flag in spread.degrees]
    hosts = number(spread.nodes) or 1
    replicas = number(spread.replicas) or 1
    if any(flag in given for flag in spread.alone):
        said += [given[flag] for flag in spread.alone if flag in given]
        replicas = replicas if hosts > 1 else 1
    elif hosts == 1 and (here := number(spread.replicas_here)) is not None:
        replicas = here
    asked = max(1, prod(degrees) * replicas // hosts)
    for flag in spread.listed:
        if (one := given.get(flag)) and (listed := _listed(one)) > asked:
            asked, said = listed, [one]
    return DeviceDemand(devices=asked, words=tuple(_shown(one) for one in said))


def _flag(spelling: Spelling, knob: Knob) -> Flag | None:
    row = spelling.knobs[knob]
    return row.words[0].flag if isinstance(row, Says) else None


def _words(spelling: Spelling, words: Sequence[str]) -> dict[Flag, Given]:
    return {one.flag: one for one in read(spelling, words) if one.flag}


def _variables(spelling: Spelling, env: Mapping[str, str]) -> dict[Flag, Given]:
    found = variables(spelling, env)
    return {flag: Given((f"{flag.env}={value}",), flag, value) for flag, value in found.items()}


def _listed(one: Given) -> int:
    """Several words are a value each; else one word holds them all."""
    if len(one.words) > 2:
        return len(one.words) - 1
    return sum(item.strip() not in _NO_DEVICE for item in _BETWEEN.split(one.value or ""))


def _shown(one: Given) -> str:
    return " ".join(one.words)
