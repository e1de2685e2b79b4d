"""What a 2xx body says about readiness. A body is ready unless it says plainly that it is not.

vLLM and SGLang answer with an empty body, llama-server ``{"status": "ok"}``, TabbyAPI
``{"status": "healthy", "issues": []}``. "Not yet" hides in 2xx replies as a status word, as a
flag, as an error object or as an empty model list (FreeToken#537). Each rule asks for one key of
the outermost object and the exact value; prose that merely contains a word is no rule.
"""

import json
import re
from typing import Final

NOT_READY_WORDS: Final = frozenset(
    {
        "error",
        "failed",
        "initialising",
        "initializing",
        "loading",
        "loading model",
        "loading weights",
        "not loaded",
        "not ready",
        "notready",
        "pending",
        "starting",
        "starting up",
        "unavailable",
        "unhealthy",
        "unready",
        "warming up",
        "warmup",
    }
)

STATUS_KEYS: Final = ("status", "state")
"""Not ready when the value is one of the words."""
READY_FLAGS: Final = ("ready", "is_ready", "loaded", "model_loaded", "healthy")
"""Not ready when the value is ``false``."""
BUSY_FLAGS: Final = ("loading", "is_loading", "model_loading")
"""Not ready when the value is ``true``."""
ERROR_KEYS: Final = ("error",)
"""Not ready when the value says anything at all."""
MODEL_LISTS: Final = ("data", "models")
"""Not ready when the value is an empty list."""

_SEPARATORS = re.compile(r"[\s_-]+")
_PROSE = re.compile(
    r"(?:the )?(?:(?:model|server|engine) )?(?:is )?(?:still )?(?P<word>[a-z ]+?)"
    r"(?: (?:the )?(?:model|weights))?(?:,? (?:please wait|try again later))?[ .!…]*"
)
_LONGEST_PROSE = 80


def not_ready_reason(body: bytes, *, whole: bool = True) -> str | None:
    """Why the body is not "ready", in words; ``None`` where it is or does not say.

    A cut body (not ``whole``) says nothing: what is loading has little to tell.
    """
    if not whole or not body.strip():
        return None
    text = body.decode("utf-8", "replace").strip()
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return _prose_reason(text)
    if isinstance(said, str):
        return _prose_reason(said)
    if said is False:
        return "the body says false"
    return _object_reason(said) if isinstance(said, dict) else None


def _prose_reason(text: str) -> str | None:
    if len(text) > _LONGEST_PROSE:
        return None
    sentence = _PROSE.fullmatch(_SEPARATORS.sub(" ", text.lower()).strip())
    return f"the body says {text!r}" if sentence and sentence["word"] in NOT_READY_WORDS else None


def _object_reason(said: dict[str, object]) -> str | None:
    for key in STATUS_KEYS:
        value = said.get(key)
        if isinstance(value, str) and _prose_reason(value):
            return f"the body says {key} {value!r}"
    for key in READY_FLAGS:
        if said.get(key) is False:
            return f"the body says {key} is false"
    for key in BUSY_FLAGS:
        if said.get(key) is True:
            return f"the body says {key} is true"
    for key in ERROR_KEYS:
        if said.get(key):
            return f"the body carries an {key}"
    for key in MODEL_LISTS:
        if said.get(key) == []:
            return f"the body lists no {key}"
    return None
