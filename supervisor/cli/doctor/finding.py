"""What a check found."""

from typing import Literal, NamedTuple

Verdict = Literal["ok", "warn", "fail", "skip"]
"""``fail``: something does not work. ``warn``: it works, and less well than it could, or not for
long. ``skip``: there was nothing to look at.
"""


class Finding(NamedTuple):
    """``advice`` is what to do next; empty where there is nothing to do."""

    verdict: Verdict
    fact: str
    advice: str = ""
