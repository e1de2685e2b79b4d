"""One word of a command line, taken apart the same way everywhere."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_FLAG = re.compile(r"(--?[A-Za-z][\w.-]*)(?:(=|\s+)(.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class FlagWord:
    """A word that begins with a flag, and what is written in the same word behind it."""

    name: str
    separator: str
    """``"="``, white space, or nothing where the word is the flag alone."""
    value: str | None


def flag_word(word: str) -> FlagWord | None:
    """``word`` as a flag; ``None`` for a value, a negative number, a lone dash or ``--``."""
    match = _FLAG.fullmatch(word)
    return None if match is None else FlagWord(match[1], match[2] or "", match[3])


def dashed(name: str) -> str:
    """A long flag's one spelling: engines that take underscores take dashes as well."""
    return name.replace("_", "-") if name.startswith("--") else name


def flag_values(argv: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each flag with the value that it would have, were it one that takes a value."""
    for position, word in enumerate(argv):
        if flag := flag_word(word):
            follower = argv[position + 1] if position + 1 < len(argv) else ""
            yield dashed(flag.name), follower if flag.value is None else flag.value
