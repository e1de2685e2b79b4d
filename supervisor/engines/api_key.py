"""The keys that a launch gave its engine, one of which our own requests have to show as well."""

from collections.abc import Mapping, Sequence

from supervisor.engines.words import flag_values

_FLAG = "--api-key"
_VARIABLES = ("LLAMA_API_KEY", "LLAMA_ARG_API_KEY", "VLLM_API_KEY")
_FILE_FLAG = "--api-key-file"
_FILE_VARIABLE = "LLAMA_ARG_API_KEY_FILE"


def api_key(argv: Sequence[str], env: Mapping[str, str]) -> str | None:
    """The first key of the last ``--api-key``, else of the engine's variable.

    llama-server takes several keys joined by commas, any of which opens the door.
    """
    keys = [value for flag, value in flag_values(argv) if flag == _FLAG]
    keys = keys or [env[name] for name in _VARIABLES if env.get(name)][:1]
    return (keys[-1].split(",")[0] or None) if keys else None


def api_key_file(argv: Sequence[str], env: Mapping[str, str]) -> str | None:
    """llama-server's file of keys, which are as good as those of its command line."""
    files = [value for flag, value in flag_values(argv) if flag == _FILE_FLAG]
    return (files[-1] if files else env.get(_FILE_VARIABLE)) or None


def keys_of(text: str) -> tuple[str, ...]:
    """Those in such a file: one a line, but for empty ones and comments."""
    return tuple(line for line in text.splitlines() if line and not line.startswith("#"))
