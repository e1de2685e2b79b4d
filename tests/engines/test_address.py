"""The effective host and port of a launch, and the plan that follows them (HLT-4, HLT-5)."""

import pytest

from supervisor.contracts.engine import AddressOverride
from supervisor.engines.llamacpp import SPEC
from tests.engines.requests import argv, request


@pytest.mark.parametrize(
    ("extra_args", "env", "host", "port"),
    [
        ([], {}, None, None),
        (["--port", "19090"], {}, None, 19090),
        (["--port=19090"], {}, None, 19090),
        (["--port 19090"], {}, None, 19090),
        (["--port", "1", "--port", "2"], {}, None, 2),
        ([], {"LLAMA_ARG_PORT": "19090"}, None, 19090),
        (["--port", "19090"], {"LLAMA_ARG_PORT": "1"}, None, 19090),
        (["--host", "0.0.0.0"], {"LLAMA_ARG_HOST": "::1"}, "0.0.0.0", None),
        ([], {"LLAMA_ARG_HOST": "127.0.0.2"}, "127.0.0.2", None),
        (["--host", "[::1]"], {}, "::1", None),
        ([], {"LLAMA_ARG_HOST": "[::1]"}, "::1", None),
        (["--host", "127.0.0.1,"], {}, "127.0.0.1", None),
        (["--host"], {}, None, None),
        (["--alias", "--port"], {}, None, None),
    ],
)
def test_who_says_it(
    extra_args: list[str], env: dict[str, str], host: str | None, port: int | None
) -> None:
    assert SPEC.address(extra_args, env) == AddressOverride(host=host, port=port)


@pytest.mark.parametrize(
    ("extra_args", "env", "part"),
    [
        (["--port", "abc"], {}, "'abc'"),
        (["--port", "80abc"], {}, "'80abc'"),
        (["--port", "-5"], {}, "'-5'"),
        (["--port", "0"], {}, "1 to 65535"),
        (["--port", "99999"], {}, "1 to 65535"),
        (["--port", "\N{FULLWIDTH DIGIT EIGHT}0"], {}, "1 to 65535"),
        ([], {"LLAMA_ARG_PORT": "tcp://10.0.0.1:80"}, "tcp://"),
        (["--host", "127.0.0.1,::1"], {}, "exactly one"),
        (["--host", " , "], {}, "exactly one"),
        (["--host", "/run/llama.sock"], {}, "Unix socket"),
        ([], {"AIP_MODE": "PREDICTION"}, "AIP_HTTP_PORT"),
    ],
)
def test_what_a_probe_could_not_follow(
    extra_args: list[str], env: dict[str, str], part: str
) -> None:
    address = SPEC.address(extra_args, env)
    assert (address.host, address.port) == (None, None)
    assert address.problem is not None
    assert part in address.problem
    assert SPEC.plan(request(extraArgs=extra_args, env=env)).argv, "the plan is total all the same"


@pytest.mark.parametrize(
    ("extra_args", "env"),
    [
        (["--port", "19090", "--host", "::1"], {}),
        ([], {"LLAMA_ARG_PORT": "19090", "LLAMA_ARG_HOST": "::1"}),
        (["--port=19090", "--host=[::1]"], {}),
    ],
)
def test_the_plan_the_record_and_the_probe_agree(
    extra_args: list[str], env: dict[str, str]
) -> None:
    launch = request(extraArgs=extra_args, env=env)
    plan, words = SPEC.plan(launch), argv(launch)
    assert [(port.container, port.host) for port in plan.ports] == [(19090, 19090)]
    assert plan.bind_host == "::1"
    assert (words.count("--port"), words.count("--host")) == (1, 1)
    assert words[words.index("--port") + 1] == "19090"
    assert words[words.index("--host") + 1] == "::1"
