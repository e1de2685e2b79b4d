"""A launch's extra arguments, read as the engine will read them.

They go last and as they are, and what they say themselves is not said by us. Two things are put
right on the way, because no engine would take them otherwise: a flag and its value glued into one
word where the engine wants two (llama.cpp b11434 rejects both ``--ctx-size=4096`` and the single
word ``--ctx-size 4096``, measured), and the brackets of an IPv6 address to bind to.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from supervisor.engines.address import unbracketed
from supervisor.engines.spelling import MANY, Flag, Spelling, find
from supervisor.engines.words import FlagWord, flag_word

_BLANK = re.compile(r"\s")


@dataclass(frozen=True, slots=True)
class Given:
    """One option of the extra arguments, or a word between them that is not ours to understand."""

    words: tuple[str, ...]
    """As they go to the engine."""
    flag: Flag | None = None
    """The option of ours that it overrides."""
    value: str | None = None
    cut: str | None = None
    """The flag that was cut from its value; the value may be a secret, and is not kept here."""


def read(spelling: Spelling, extra_args: Sequence[str]) -> tuple[Given, ...]:
    """Every word of ``extra_args`` in order, grouped into options."""
    given = []
    position = 0
    while position < len(extra_args):
        word = extra_args[position]
        position += 1
        named = flag_word(word)
        flag = find(spelling, named.name) if named else None
        if flag is None and (attached := _attached(spelling, word)):
            given.append(attached)
            continue
        if named is None or (flag is None and not _glued(named)):
            given.append(Given((word,)))
        elif named.value is not None:
            given.append(_in_one_word(spelling, word, named, named.value, flag))
        elif flag is not None:
            values = _values(flag, extra_args, position)
            position += len(values)
            given.append(_option(spelling, (word, *values), flag, values[-1] if values else None))
    return tuple(given)


def arguments(given: Sequence[Given]) -> dict[Flag, str]:
    """The value of each of our flags among them; the last one of several counts."""
    return {one.flag: one.value for one in given if one.flag and one.value is not None}


def variables(spelling: Spelling, env: Mapping[str, str]) -> dict[Flag, str]:
    """The value of each of our flags that a variable gives."""
    return {flag: env[name] for name, flag in spelling.twins.items() if name in env}


def _glued(named: FlagWord) -> bool:
    """Holds a value. After a single dash, several blanks are rather those of a sentence."""
    if named.value is None:
        return False
    return named.separator == "=" or named.name.startswith("--") or not _BLANK.search(named.value)


def _attached(spelling: Spelling, word: str) -> Given | None:
    """``-qawq`` for ``-q awq``: argparse reads a flag of one letter so."""
    flag = spelling.index.get(word[:2]) if word[1:2] != "-" else None
    if flag is None or not flag.takes or not spelling.grammar.prefixes:
        return None
    return Given((word,), flag, word[2:])


def _in_one_word(
    spelling: Spelling, word: str, named: FlagWord, value: str, flag: Flag | None
) -> Given:
    if named.separator == "=" and spelling.grammar.equals:
        return _option(spelling, (word,), flag, value)
    return _option(spelling, (named.name, value), flag, value, cut=named.name)


def _option(
    spelling: Spelling,
    words: tuple[str, ...],
    flag: Flag | None,
    value: str | None,
    cut: str | None = None,
) -> Given:
    if flag is spelling.host and value is not None:
        words = (*words[:-1], unbracketed(words[-1]))
    return Given(words, flag, value, cut)


def _values(flag: Flag, words: Sequence[str], start: int) -> tuple[str, ...]:
    if flag.takes != MANY:
        return tuple(words[start : start + flag.takes])
    end = start
    while end < len(words) and flag_word(words[end]) is None:
        end += 1
    return tuple(words[start:end])
