"""Which words of a command line are secrets, in the spelling of any engine.

The one redactor uses this for everything that is shown. It errs on the side of hiding: an argparse
engine takes ``--api-k`` for ``--api-key``, so a beginning of a secret flag counts as one.
"""

import re
from collections.abc import Iterator, Sequence

from supervisor.engines.words import dashed, flag_word

MASK = "***"

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

_PUBLIC = frozenset({"--ssl-keyfile"})
"""A whole flag, though it begins a secret one."""
_SHORTEST_PREFIX = len("--hf-t")
_SECRET_WORD = r"(?:api[_-]?key|access[_-]?key|secret(?:[_-]?key)?|passw(?:or)?d|credentials?)"
_SECRET_TOKEN = r"(?:(?:access|api|auth|bearer|hf|hub)[_-]?)?token"
"""Not any token: tokenizers have many, and none of theirs is a secret."""
_SECRET_FLAG = re.compile(
    rf"--?(?:[\w.-]*[-.])?(?:{_SECRET_WORD}|auth-token)|--?(?:[\w.-]*\.)?{_SECRET_TOKEN}|--auth"
)
_SECRET_VARIABLE = re.compile(
    r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|PW|CREDENTIAL)S?$"
    r"|(^|_)(TOKEN|SECRET|PASSWORD|PASSWD|PASS|PW|PAT|CREDENTIALS?)(_|$)",
    re.IGNORECASE,
)
_SECRET_MEMBER = re.compile(
    rf'("(?:[\w-]*{_SECRET_WORD}|{_SECRET_TOKEN}|authorization)"\s*:\s*")((?:[^"\\]|\\.)+)',
    re.IGNORECASE,
)
"""Of an object in JSON: what comes before the value, and the value."""
_USERINFO = re.compile(r"(?<=://)[^/?#\s\"']*@")


def is_secret_flag(name: str) -> bool:
    """Whether what follows this flag must not be shown."""
    name = dashed(name).lower()
    if name in SECRET_FLAGS or _SECRET_FLAG.fullmatch(name):
        return True
    if name in _PUBLIC or not name.startswith("--") or len(name) < _SHORTEST_PREFIX:
        return False
    return any(flag.startswith(name) for flag in SECRET_FLAGS)


def is_secret_variable(name: str) -> bool:
    """Whether a variable of this name has a value that must not be shown."""
    return _SECRET_VARIABLE.search(name) is not None


def mask_argv(argv: Sequence[str]) -> tuple[str, ...]:
    """``argv`` with the values of secret flags and of secret members of JSON objects masked, and
    names and passwords in URLs.
    """
    shown = list(argv)
    for position, start in _secrets(argv):
        shown[position] = shown[position][:start] + MASK
    plain = (_SECRET_MEMBER.sub(rf"\1{MASK}", word) for word in shown)
    return tuple(_USERINFO.sub(f"{MASK}@", word) for word in plain)


def secret_values(argv: Sequence[str]) -> tuple[str, ...]:
    """The values that ``mask_argv`` hides, for masking them in other text; each key of a list."""
    found: list[str] = []
    for position, start in _secrets(argv):
        value = argv[position][start:]
        found += (value, *value.split(",")) if "," in value else (value,)
    for word in argv:
        found += (match[2] for match in _SECRET_MEMBER.finditer(word))
    return tuple(value for value in found if value and not value.startswith("--"))


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
        if assigned and name.isidentifier() and is_secret_variable(name):
            # What ``env`` and a shell take before a program.
            yield position, len(name) + 1
        if flag and is_secret_flag(flag.name):
            if flag.value is None:
                first = more = True
            else:
                yield position, len(flag.name) + len(flag.separator)
                more = True
