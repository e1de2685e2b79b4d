"""How much a launch may say.

Every word of it is looked at many times, on the event loop, and a plan is made for whoever may
read; so there is an end to it, far beyond what any engine needs.
"""

from collections.abc import Collection, Iterator

from msgspec import Struct, UnsetType

from supervisor.contracts.instance import LaunchParams
from supervisor.lifecycle.errors import InvalidLaunch

MOST_WORDS = 512
MOST_VARIABLES = 256
MOST_DEVICES = 256
MOST_PARTS = 512
"""Lines of all variables, and parts between commas of all words: each may be a secret, and then is
looked for in every text about the launch."""
MOST_BYTES = 64 << 10
"""Of all words, of the whole environment, and of each text, as they are handed to a program. A chat
template or a JSON schema in one word has some 10 KiB."""


def check_sizes(params: LaunchParams) -> None:
    """Raises ``InvalidLaunch`` with what is too much, how much there is and how much may be."""
    env = params.env or {}
    lists: tuple[tuple[str, str, int, Collection[str]], ...] = (
        ("extraArgs", "words", MOST_WORDS, params.extra_args or ()),
        ("command", "words", MOST_WORDS, params.command or ()),
        ("env", "variables", MOST_VARIABLES, [f"{name}={value}" for name, value in env.items()]),
        ("devices", "ids", MOST_DEVICES, params.devices or ()),
    )
    for member, things, most, words in lists:
        if len(words) > most:
            raise InvalidLaunch(f"{member} has {len(words)} {things}; at most {most} are taken")
        _check_bytes(member, words)
    _check_parts("env", "lines", sum(value.count("\n") for value in env.values()))
    words = (*(params.extra_args or ()), *(params.command or ()))
    _check_parts("extraArgs or command", "commas", sum(word.count(",") for word in words))
    for struct in (params, params.options):
        for member, text in _texts(struct):
            _check_bytes(member, (text,))


def _texts(struct: Struct | UnsetType) -> Iterator[tuple[str, str]]:
    """The members that are text, by their names on the wire."""
    if isinstance(struct, Struct):
        names = zip(struct.__struct_fields__, struct.__struct_encode_fields__, strict=True)
        for field, name in names:
            if isinstance(value := getattr(struct, field), str):
                yield name, value


def _check_parts(member: str, things: str, count: int) -> None:
    if count > MOST_PARTS:
        raise InvalidLaunch(f"{member} has {count} {things}; at most {MOST_PARTS} are taken")


def _check_bytes(member: str, words: Collection[str]) -> None:
    size = sum(len(word.encode(errors="replace")) + 1 for word in words)
    if size > MOST_BYTES:
        raise InvalidLaunch(f"{member} has {size} bytes; at most {MOST_BYTES} are taken")
