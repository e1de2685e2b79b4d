"""The key that a launch gave its engine, which the readiness probe has to show as well."""

from collections.abc import Mapping, Sequence

from supervisor.engines.words import flag_values

_FLAG = "--api-key"
_VARIABLES = ("LLAMA_API_KEY", "LLAMA_ARG_API_KEY", "VLLM_API_KEY")


def api_key(argv: Sequence[str], env: Mapping[str, str]) -> str | None:
    """The first key of the last ``--api-key``, else of the engine's variable.

    llama-server takes several keys joined by commas, any of which opens the door.
    """
    keys = [value for flag, value in flag_values(argv) if flag == _FLAG]
    keys = keys or [env[name] for name in _VARIABLES if env.get(name)][:1]
    return (keys[-1].split(",")[0] or None) if keys else None
