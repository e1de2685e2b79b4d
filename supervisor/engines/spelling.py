"""How an engine spells things: its flags, and one row for each of the contract's knobs.

Everything that tells two engines apart on a command line is data of these types. A row either says
a knob (``Says``) or has no word for it (``Lacks``), with the reason that people get to read.
"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from supervisor.contracts.engine import ServingOptions

MANY = -1
"""Takes values up to the next flag."""

Knob = Literal[
    "tensor_parallel",
    "pipeline_parallel",
    "max_context_length",
    "memory_fraction",
    "max_concurrent_requests",
    "kv_cache_dtype",
    "dtype",
    "quantization",
    "trust_remote_code",
    "tool_call_parser",
    "reasoning_parser",
]
KNOBS: tuple[Knob, ...] = get_args(Knob)


@dataclass(frozen=True, slots=True, eq=False)
class Flag:
    """One option of an engine, with every word that it answers to. Compared by identity."""

    names: tuple[str, ...]
    """The first is the one we write; an empty one stands for a bare, positional value."""
    takes: int = 1
    """How many values: 0 for a switch, ``MANY``."""
    negations: tuple[str, ...] = ()
    """Words that set the same option to its opposite, and so override it just as well."""
    env: str | None = None
    """The variable that says the same where the command line is silent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grammar:
    """How an engine cuts its command line into words."""

    equals: bool
    """``--flag=value`` in one word; otherwise flag and value must be two."""
    underscores: bool
    """``--a_b`` means ``--a-b``."""
    prefixes: bool
    """An unambiguous beginning of a long flag means the flag (argparse)."""


@dataclass(frozen=True, slots=True)
class Lacks:
    """The engine has no word for this knob, or for this value of it."""

    reason: str


@dataclass(frozen=True, slots=True)
class Noted:
    """A value that people should know something about."""

    text: str
    note: str


@dataclass(frozen=True, slots=True)
class Ask:
    """What the value of one knob may depend on besides the knob itself."""

    options: ServingOptions
    arguments: Mapping[Flag, str]
    """What the extra arguments give by themselves. It beats the options, and they beat ..."""
    variables: Mapping[Flag, str]
    """... what the launch's environment gives."""


Answer = str | Noted | Lacks
Translate = Callable[[Any, Ask], Answer]


def plain(value: Any, _: Ask) -> Answer:
    """The value as it is."""
    return str(value)


def fixed(text: str, note: str = "") -> Translate:
    """The same text whatever the value: a switch of the engine's, where others have a value."""
    answer = Noted(text, note) if note else text
    return lambda _value, _ask: answer


def among(known: Sequence[str], same: Mapping[str, str], reason: str) -> Translate:
    """One of the engine's own words, or another engine's word for one of them; else a reason.

    ``reason`` ends in the words that there are. Letter case is no difference.
    """
    own = {**{word.lower(): word for word in known}, **same}
    listed = f"{reason} {', '.join(known)}"

    def translate(value: Any, _: Ask) -> Answer:
        return own.get(str(value).lower()) or Lacks(f"{value} is no word for it: {listed}")

    return translate


def also(same: Mapping[str, str], foreign: Container[str] = (), reason: str = "") -> Translate:
    """As it is, but for other engines' words: those for the same thing, and those for none here."""

    def translate(value: Any, _: Ask) -> Answer:
        if value in foreign:
            return Lacks(f"{value}: {reason}")
        return same.get(str(value), str(value))

    return translate


@dataclass(frozen=True, slots=True)
class Word:
    """A flag, and how the knob's value is put into its words."""

    flag: Flag
    value: Translate = plain


@dataclass(frozen=True, slots=True)
class Says:
    """A knob that the engine has words for; each one gets the knob's value."""

    words: tuple[Word, ...]
    companions: tuple[Word, ...] = ()
    """Written with the words, once, and only while none of those is overridden."""
    auto: bool = False
    """``"auto"`` is a value of the engine's own here, not another word for unset."""


Row = Says | Lacks


@dataclass(frozen=True, slots=True, kw_only=True)
class Harmless:
    """Flags that load no code, write no file and read none but those checked: for everybody.

    Those of the knobs, but for the one that trusts a model's code, are so besides.
    """

    switches: frozenset[str] = frozenset()
    values: frozenset[str] = frozenset()
    """With one value."""
    lists: frozenset[str] = frozenset()
    """With values up to the next flag."""
    files: frozenset[str] = frozenset()
    """With one value that is the path of something to be read: it has to lie where models may."""

    @property
    def words(self) -> frozenset[str]:
        return self.switches | self.values | self.lists | self.files


def names(text: str) -> frozenset[str]:
    """A table of names, as it is easiest to read."""
    return frozenset(text.split())


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Which of an engine's words say over how many devices it will spread.

    The tensor and pipeline knobs' own flags are multiplied always, and are not repeated here.
    """

    degrees: tuple[Flag, ...] = ()
    """Multiplied with them."""
    replicas: Flag | None = None
    """Copies of all that: multiplied too, but for ..."""
    alone: tuple[Flag, ...] = ()
    """... where one of these makes it a single one here, ..."""
    replicas_here: Flag | None = None
    """... or this one says how many of them are this host's."""
    nodes: Flag | None = None
    """Hosts that share everything evenly."""
    elsewhere: Mapping[Flag, str] = field(default_factory=dict)
    """With this value something else chooses the devices, on whatever host."""
    listed: tuple[Flag, ...] = ()
    """Name something for each device: as many as there are values."""

    def flags(self) -> Iterator[Flag]:
        """All of them."""
        yield from (*self.degrees, *self.alone, *self.elsewhere, *self.listed)
        yield from (it for it in (self.replicas, self.replicas_here, self.nodes) if it)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spelling:
    """An engine's whole table."""

    program: str
    """For sentences about it."""
    grammar: Grammar
    model: Says
    host: Flag
    port: Flag
    name: Row
    """The served model's name."""
    knobs: Mapping[Knob, Row]
    switches: tuple[Flag, ...] = ()
    """Always on, such as the one for metrics."""
    path_prefix: Flag | None = None
    """Moves every HTTP path, that of the health check included."""
    barred: Mapping[Flag, str] = field(default_factory=dict)
    """Flags that take the engine out of a probe's reach, each with what to do instead."""
    harmless: Harmless = Harmless()
    spread: Spread = Spread()
    config: Flag | None = None
    """Names a YAML file whose keys are flags; the command line beats it."""
    index: Mapping[str, Flag] = field(init=False)
    """Every spelling of every flag above."""
    twins: Mapping[str, Flag] = field(init=False)
    """Variables that say what a flag says."""

    def __post_init__(self) -> None:
        flags = tuple(self._flags())
        words = {word: flag for flag in flags for word in (*flag.names, *flag.negations) if word}
        object.__setattr__(self, "index", words)
        object.__setattr__(self, "twins", {flag.env: flag for flag in flags if flag.env})

    def _flags(self) -> Iterator[Flag]:
        yield from (self.host, self.port, *self.switches, *self.barred)
        yield from self.spread.flags()
        yield from (it for it in (self.path_prefix, self.config) if it)
        for row in (self.model, self.name, *self.knobs.values()):
            if isinstance(row, Says):
                yield from (word.flag for word in (*row.words, *row.companions))


def find(spelling: Spelling, word: str) -> Flag | None:
    """The flag that the engine understands ``word`` to be, if it is one that we would write."""
    grammar = spelling.grammar
    if grammar.underscores and word.startswith("--"):
        stem, dot, rest = word.partition(".")  # vLLM: what follows a dot is a key of a JSON value
        word = stem.replace("_", "-") + dot + rest
    flag = spelling.index.get(word)
    if flag is None and grammar.prefixes and len(word) > 1:
        meant = {flag for name, flag in spelling.index.items() if name.startswith(word)}
        flag = meant.pop() if len(meant) == 1 else None
    return flag
