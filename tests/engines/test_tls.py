"""Which launches make their engine serve HTTPS."""

import pytest

from supervisor.engines.tls import speaks_tls


@pytest.mark.parametrize(
    ("line", "env", "secure"),
    [
        ("vllm serve M", {}, False),
        ("vllm serve M --ssl-keyfile k --ssl-certfile c", {}, True),
        ("vllm serve M --ssl_certfile=c", {}, True),
        ("python -m sglang.launch_server --ssl-keyfile=k --ssl-certfile=c", {}, True),
        ("vllm serve M --ssl-ca-certs c --ssl-cert-reqs 0", {}, False),
        ("llama-server --ssl-key-file k --ssl-cert-file c", {}, True),
        ("llama-server --ssl-key-file k", {}, False),
        ("llama-server --ssl-key-file k", {"LLAMA_ARG_SSL_CERT_FILE": "c"}, True),
        ("llama-server", {"LLAMA_ARG_SSL_CERT_FILE": "", "LLAMA_ARG_SSL_KEY_FILE": "k"}, False),
    ],
)
def test_the_flags_and_variables_that_turn_it_on(
    line: str, env: dict[str, str], secure: bool
) -> None:
    assert speaks_tls(line.split(), env) == secure
