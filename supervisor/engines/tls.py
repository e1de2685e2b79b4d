"""Whether a launch made its engine speak TLS, which the readiness probe has to speak as well."""

from collections.abc import Mapping, Sequence

from supervisor.engines.words import flag_values

_EITHER = frozenset({"--ssl-keyfile", "--ssl-certfile"})
"""vLLM's and SGLang's, which uvicorn gets: one of the two is enough for it to want TLS."""
_BOTH = {
    "--ssl-key-file": "LLAMA_ARG_SSL_KEY_FILE",
    "--ssl-cert-file": "LLAMA_ARG_SSL_CERT_FILE",
}
"""llama-server's, and their variables: it speaks TLS where it has both."""


def speaks_tls(argv: Sequence[str], env: Mapping[str, str]) -> bool:
    """Whether the engine with this command line and environment serves HTTPS."""
    said = {flag for flag, value in flag_values(argv) if value}
    return bool(said & _EITHER) or all(
        flag in said or env.get(variable) for flag, variable in _BOTH.items()
    )
