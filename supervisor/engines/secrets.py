"""Which words of a command line are secrets, in the spelling of any engine.

The one redactor uses this for everything that is shown. It errs on the side of hiding: an argparse
engine takes ``--api-k`` for ``--api-key``, so a beginning of a secret flag counts as one.
"""

import re
from collections.abc import Iterator, Sequence

import msgspec

from supervisor.engines.keyed import MASK, SECRET_TOKENS, SECRET_WORDS, Span, keyed_spans
from supervisor.engines.words import dashed, flag_word

SECRET_FLAGS: frozenset[str] = frozenset(
    {
        "--admin-api-key",  # sglang
        "--api-key",  # vllm and llama-server take several, sglang one
        "--hf-token",  # vllm (its value is optional), llama-server
        "-hft",  # llama-server
        "--mcp-servers-json",  # llama-server: holds the servers' headers and environment
        "--seqlog-api-key",  # tabbyapi
        "--ssl-keyfile-password",  # sglang
    }
)

_PUBLIC = frozenset(
    {
        *("--ssl-keyfile", "--seqlog"),
        # Switches of the servers' cross-origin rules.
        *("--allow-credentials", "--no-allow-credentials"),
        *("--cors-credentials", "--no-cors-credentials"),
    }
)
"""Whole flags, though they sound like secret ones or begin one."""
_SHORTEST_PREFIX = len("--hf-t")
_SECRET_FLAG = re.compile(
    rf"--?(?:[\w.-]*[-.])?(?:{SECRET_WORDS}|pwd|auth-token)"
    rf"|--?(?:[\w.-]*\.)?(?:{SECRET_TOKENS}|token)|--auth|--cookie"
)
_SECRET_VARIABLE = re.compile(
    r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|PW|CREDENTIAL|COOKIE)S?$"
    r"|(^|_)(TOKEN|SECRET|PASSWORD|PASSWD|PASS|PW|PAT|CREDENTIALS?|COOKIES?)(_|$)"
    r"|_(PWD|AUTH)$",
    re.IGNORECASE,
)
_USERINFO = re.compile(r"(?<=://)[^/?#\s\"']*@")
_SHELL_WORD = re.compile(r"(?:\"(?:[^\"\\]|\\.)*\"?|'[^']*'?|[^\s\"'])+", re.DOTALL)
"""A quote that is not closed takes the rest: to look for its end each time would take long."""
_LONGEST_COMMANDS = 8 << 10
"""Of all words together that are cut as a shell would, which takes its time."""
_PLAIN_WORD = re.compile(r"\S+")
_SHORTEST_UNSURE = 8
"""A word below a secret name is masked everywhere only if it is hardly an ordinary one."""


def is_secret_flag(name: str) -> bool:
    """Whether what follows this flag must not be shown."""
    name = dashed(name).lower()
    if name in _PUBLIC:
        return False
    if name in SECRET_FLAGS or _SECRET_FLAG.fullmatch(name):
        return True
    if not name.startswith("--") or len(name) < _SHORTEST_PREFIX:
        return False
    return any(flag.startswith(name) for flag in SECRET_FLAGS)


def is_secret_variable(name: str) -> bool:
    """Whether a variable of this name has a value that must not be shown."""
    return _SECRET_VARIABLE.search(name) is not None


def mask_argv(argv: Sequence[str]) -> tuple[str, ...]:
    """``argv`` with the values of secret flags masked, and what words hold of secrets themselves:
    members of JSON objects, queries and passwords of URLs, whole command lines.
    """
    shown = list(argv)
    for position, spans in _found(argv).items():
        word = shown[position]
        for span in reversed(list(_apart(spans))):
            word = word[: span.start] + MASK + word[span.end :]
        shown[position] = word
    return tuple(_USERINFO.sub(f"{MASK}@", word) for word in shown)


def secret_values(argv: Sequence[str]) -> tuple[str, ...]:
    """The values that ``mask_argv`` hides, for masking them in other text; each key of a list."""
    found: list[str] = []
    for position, spans in _found(argv).items():
        for span in spans:
            value = argv[position][span.start : span.end].strip("\"'")
            if span.sure or len(value) >= _SHORTEST_UNSURE:
                found += (value, *value.split(",")) if "," in value else (value,)
                found += _unescaped(value)
    return tuple(value for value in dict.fromkeys(found) if value and not value.startswith("--"))


def _unescaped(value: str) -> tuple[str, ...]:
    """As an engine holds it that was given it in JSON."""
    try:
        quoted = f'"{value}"'.encode(errors="replace")
        return (msgspec.json.decode(quoted, type=str),) if "\\" in value else ()
    except msgspec.DecodeError:
        return ()


def _found(argv: Sequence[str]) -> dict[int, list[Span]]:
    """Every secret by its word's position; one may lie in another."""
    found: dict[int, list[Span]] = {position: [] for position in range(len(argv))}
    for position, start in _secrets(argv):
        found[position].append(Span(start, len(argv[position])))
    room = _LONGEST_COMMANDS
    for position, word in enumerate(argv):
        found[position] += keyed_spans(word)
        if room and any(map(str.isspace, word)):
            found[position] += _in_command(word[:room])
            room = max(0, room - len(word))
    return found


def _apart(spans: list[Span]) -> Iterator[Span]:
    end = -1
    for span in sorted(spans, key=lambda it: (it.start, -it.end)):
        if span.start >= end:
            yield span
        elif span.end > end:
            yield Span(end, span.end, span.sure)
        end = max(end, span.end)


def _in_command(text: str) -> Iterator[Span]:
    """What a shell would be given, as in ``sh -c "TOKEN=x serve --api-key y"``."""
    # Cut at every blank besides, for not each apostrophe is a quote.
    for pattern in (_SHELL_WORD, _PLAIN_WORD):
        words = list(pattern.finditer(text))
        for position, start in _secrets([word[0].strip("\"'") for word in words]):
            word = words[position]
            begin = word.start() + start + (word[0][0] in "\"'")
            yield Span(begin, word.end(), sure=pattern is _SHELL_WORD)


def _secrets(argv: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Where secrets are: the word's position, and where in the word the secret starts."""
    first, more = False, False
    for position, word in enumerate(argv):
        flag = flag_word(word)
        if first or (more and not word.startswith("-")):
            # llama-server takes the next word for the value whatever it looks like, and vllm all
            # of them up to the next flag.
            yield position, 0
            more = not (first and word.startswith("-"))
            first = False
            continue
        first = more = False
        name, assigned, _ = word.partition("=")
        if assigned and name.isidentifier() and name.isupper() and is_secret_variable(name):
            # What ``env`` and a shell take before a program. In small letters it is rather a
            # setting (``max_tokens=4``); those that are secret by their name are found besides.
            yield position, len(name) + 1
        if flag and is_secret_flag(flag.name):
            if flag.value is None:
                first = more = True
            else:
                yield position, len(flag.name) + len(flag.separator)
                more = True
