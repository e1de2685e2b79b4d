"""The key that a launch gave its engine, which the readiness probe has to show as well."""

from collections.abc import Mapping, Sequence

_FLAG = "--api-key"
_VARIABLES = ("LLAMA_API_KEY", "LLAMA_ARG_API_KEY", "VLLM_API_KEY")


def api_key(argv: Sequence[str], env: Mapping[str, str]) -> str | None:
    """The first key of the last ``--api-key``, else of the engine's variable.

    llama-server takes several keys joined by commas, any of which opens the door.
    """
    found: str | None = None
    for position, word in enumerate(argv):
        name, equals, value = word.partition("=")
        if name.replace("_", "-") != _FLAG:
            continue
        if equals:
            found = value
        elif position + 1 < len(argv):
            found = argv[position + 1]
    if found is None:
        found = next((env[name] for name in _VARIABLES if env.get(name)), None)
    return found.split(",")[0] or None if found else None
