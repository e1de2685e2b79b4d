"""The one redactor: what leaves us about a launch goes through here.

Secrets of a launch are the values of its secret-named variables and flags. They are masked
wherever they turn up in a text; an engine's other output stays readable.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from supervisor.contracts.engine import LaunchPlan
from supervisor.contracts.event import RedactedPlan
from supervisor.contracts.instance import InstanceRecord, LaunchParams
from supervisor.engines.keyed import MASK, mask_keyed
from supervisor.engines.secrets import is_secret_variable, mask_argv, secret_values
from supervisor.failures import bounded_tail

SHORTEST_SECRET = 4
"""Masking every "1" in a log would hide more than it protects."""

LINE_CHARS = 8

_PATTERNS = (
    re.compile(r"(?<=://)[^/\s@]+(?=@)"),
    re.compile(r"\bhf_[A-Za-z0-9]{20,}"),
    re.compile(r"\bsk-[A-Za-z0-9_-]{16,}"),
    re.compile(r"(?<=[Bb]earer )[A-Za-z0-9._~+/-]{8,}=*"),
    # TabbyAPI prints the keys that it made up: behind these words, or in a line by itself.
    re.compile(r"(?<=key is: )[^\s].*"),
    re.compile(r"^[0-9a-f]{32}$", re.MULTILINE),
)
ARGV_SHOWN_BYTES = 8 << 10


@dataclass(frozen=True, slots=True)
class Redactor:
    """Knows one launch's secrets and never shows them."""

    secrets: tuple[str, ...]

    @classmethod
    def of(cls, params: LaunchParams, plan: LaunchPlan | None) -> "Redactor":
        # Each by itself: what follows a secret flag at the end of one is not its value.
        said = (params.extra_args or (), params.command or (), plan.argv if plan else ())
        env = {**(params.env or {}), **(plan.env if plan else {})}
        whole = {*(it for argv in said for it in secret_values(argv)), *_secret_env(env)}
        return cls(()).knowing(whole)

    def knowing(self, more: Iterable[str]) -> "Redactor":
        """One that hides these as well."""
        if not (more := set(more)):
            return self
        whole = {*self.secrets, *more}
        # A log shows a key file's lines one by one.
        lines = {line for value in whole for line in value.splitlines() if len(line) >= LINE_CHARS}
        plain = {value for value in whole | lines if not (value.isdigit() and len(value) < 12)}
        found = {spelling for value in plain for spelling in _spellings(value)}
        long_first = sorted(found, key=lambda secret: (-len(secret), secret))
        return Redactor(tuple(value for value in long_first if len(value) >= SHORTEST_SECRET))

    @classmethod
    def of_record(cls, record: InstanceRecord) -> "Redactor":
        """Of a launch that a record or a tombstone tells about."""
        supervision = record.supervision
        return cls.of(supervision.launch, supervision.plan) if supervision else cls(())

    def text(self, text: str) -> str:
        """Every secret of the launch, and whatever looks like one, masked."""
        return _by_patterns(self._known(text))

    def _known(self, text: str) -> str:
        for secret in self.secrets:
            text = text.replace(secret, MASK)
        return text

    def _words(self, argv: Sequence[str]) -> Iterable[str]:
        """Each word masked; the secrets are looked for in all of them at once."""
        words = self._known("\0".join(mask_argv(argv))).split("\0") if argv else ()
        return map(_by_patterns, words)

    def tail(self, text: str) -> str:
        """A log tail as failures carry it: masked, and at most 8 KiB when encoded."""
        return bounded_tail(self.text(text))

    def plan(self, plan: LaunchPlan) -> RedactedPlan:
        """A plan for events: masked argv, and of the environment only names."""
        return RedactedPlan(
            kind=plan.kind,
            argv=_shown(self._words(plan.argv)),
            env=tuple(sorted(plan.env)),
            devices=plan.devices,
            image=plan.image,
            workdir=plan.workdir,
        )

    def masked(self, plan: LaunchPlan) -> dict[str, str]:
        """The environment of a plan for a reply: every name, no value."""
        return dict.fromkeys(sorted(plan.env), MASK)

    def argv(self, argv: Sequence[str]) -> tuple[str, ...]:
        return tuple(self._words(argv))


def _by_patterns(text: str) -> str:
    text = mask_keyed(text)
    for pattern in _PATTERNS:
        text = pattern.sub(MASK, text)
    return text


def _spellings(value: str) -> Iterable[str]:
    """A secret as it is, and as an engine writes it that logs in JSON or in Python's way."""
    return {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]} | {
        repr(value)[1:-1]
    }


def _secret_env(env: Mapping[str, str]) -> Iterable[str]:
    return (value for name, value in env.items() if is_secret_variable(name))


def _shown(words: Iterable[str]) -> tuple[str, ...]:
    """As many words as an event line has room for."""
    kept: list[str] = []
    room = ARGV_SHOWN_BYTES
    for word in words:
        room -= len(word.encode(errors="replace")) + 3
        if room < 0:
            return (*kept, "…")
        kept.append(word)
    return tuple(kept)
