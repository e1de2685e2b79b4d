"""Secrets that a text itself calls so: members of JSON and of Python's objects, queries of URLs,
headers, ``name: value`` and ``name=value`` in a log.

What comes before the colon or the equals sign decides, and only names do that mean a secret
wherever they stand; so a tokenizer's many tokens, their numbers and their texts stay readable. One
pass, linear in the text, for logs go through here line by line.
"""

import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass

MASK = "***"

SECRET_WORDS = (
    r"(?:api|access|private|signing|encryption)[_-]?keys?"
    r"|secret(?:[_-]?(?:access[_-]?)?key)?s?|passw(?:or)?ds?|passphrases?|credentials?"
)
"""What a name ends in, whatever comes before, that is always a secret's."""
SECRET_TOKENS = r"(?:access|api|auth|bearer|hf|hub|refresh|security|session)[_-]?token"
"""Not any token: tokenizers have many, and none of theirs is a secret."""
_MEMBERS = r"(?:proxy-)?authorization|auth|pass|pwd|token|(?:set-)?cookies?"
"""Whole names of members in quotes, that out of them are ordinary words."""
_HEADERS = r"(?:proxy-)?authorization|(?:set-)?cookie|x-[a-z-]{0,40}(?:token|signature|secret|auth)"
_QUERY = rf"[\w.-]{{0,40}}?(?:{SECRET_WORDS}|token|signature|credential)|sig|key|auth|pwd|pass"

_QUOTE = r"\\{0,3}[\"']"
_KEYED = re.compile(
    rf"(?:(?:{SECRET_WORDS}|{SECRET_TOKENS})(?:{_QUOTE})?(?=\s{{0,8}}[:=])"
    rf"|(?<=[\"'])(?:{_MEMBERS}){_QUOTE}(?=\s{{0,8}}:)"
    rf"|(?P<header>(?<![\w-])(?:{_HEADERS})(?=:))"
    rf"|(?P<query>[?&](?:{_QUERY})(?==)))"
    r"\s{0,8}[:=]{1,2}>?[ \t]{0,8}",
    re.IGNORECASE,
)
_STEMS = ("key", "secret", "pass", "pwd", "token", "credential", "auth", "cookie", "sig")
"""One of them is in every name. Most lines of a log have none, which is found out fast."""
_OPENING = re.compile(_QUOTE)
_BODIES = {it: re.compile(rf"(?:[^{it}\\]|\\.)*", re.DOTALL) for it in ("'", '"')}
_TO_LINE_END = re.compile(r"[^\r\n\"']+")
_TO_AMPERSAND = re.compile(r"[^&#\s\"'<>]+")
_BARE = re.compile(r"[^\s,;&)\]}\"']+")
_PART = re.compile(
    r"\"(?:[^\"\\]|\\.)*\"?|'(?:[^'\\]|\\.)*'?|[\[\]{}]|[^\s,:=\[\]{}\"']+", re.DOTALL
)
_KEY_FOLLOWS = re.compile(r"\s{0,8}:")

ORDINARY = frozenset(
    {
        *("none", "null", "nil", "true", "false", "yes", "no", "empty", "unset", "set", "str"),
        *("basic", "bearer", "digest", "default", "auto", "required", "optional"),
        *("enabled", "disabled", "string", "bool", "object"),
    }
)
"""Values that are no secret, whatever they are called."""

LONGEST_OBJECT = 4096


@dataclass(frozen=True, slots=True)
class Span:
    """A secret's place in a text."""

    start: int
    end: int
    sure: bool = True
    """The very value of a secret name, and not one of several below it."""


def keyed_spans(text: str) -> Iterator[Span]:
    """Every secret in ``text`` that has a secret's name, in order and without overlaps."""
    small = text.lower()
    if not any(stem in small for stem in _STEMS):
        return
    at = 0
    while found := _KEYED.search(text, at):
        at = found.end()
        if text[at : at + 1] in ("[", "{") and not found["query"]:
            at = yield from _inner(text, at, _limit(text, found))
            continue
        start, end = _value(text, at, found)
        if end > start and text[start:end].lower() not in ORDINARY | {MASK}:
            yield Span(start, end)
        at = max(at, end)


def mask_keyed(text: str) -> str:
    """``text`` with every such secret masked."""
    if ":" not in text and "=" not in text:
        return text
    parts, at = [], 0
    for span in keyed_spans(text):
        parts += [text[at : span.start], MASK]
        at = span.end
    return "".join((*parts, text[at:])) if parts else text


def _value(text: str, at: int, found: re.Match[str]) -> tuple[int, int]:
    if opening := _OPENING.match(text, at):
        return opening.end(), _closing(text, opening.end(), opening[0])
    kind = _TO_LINE_END if found["header"] else _TO_AMPERSAND if found["query"] else _BARE
    value = kind.match(text, at)
    return (at, value.end()) if value else (at, at)


def _closing(text: str, start: int, quote: str) -> int:
    """Where a quoted value ends; a text that was cut in the middle of it ends it too."""
    if len(quote) > 1:  # inside of a string itself: what opened it closes it
        end = text.find(quote, start)
        return len(text) if end < 0 else end
    body = _BODIES[quote].match(text, start)
    return body.end() if body else start


def _limit(text: str, found: re.Match[str]) -> int:
    """How far a list or an object may reach: further than its line only where its name is quoted,
    as in JSON that is printed for people."""
    if found[0].rstrip(" \t\r\n:=>")[-1] in "\"'":
        return found.end() + LONGEST_OBJECT
    end = text.find("\n", found.end())
    return len(text) if end < 0 else end


def _inner(text: str, start: int, limit: int) -> Generator[Span, None, int]:
    """The values below a secret name: of a list, of an object, however deep. Returns its end."""
    depth, at = 0, start
    for part in _PART.finditer(text, start, limit):
        word, at = part[0], part.end()
        if word in "[{":
            depth += 1
        elif word in "]}":
            depth -= 1
            if depth == 0:
                break
        elif not _KEY_FOLLOWS.match(text, part.end()):
            quoted = word[0] in "\"'"
            end = part.end() - (quoted and len(word) > 1 and word[-1] == word[0])
            if end > part.start() + quoted and word.strip("\"'").lower() not in ORDINARY:
                yield Span(part.start() + quoted, end, sure=False)
    return at
