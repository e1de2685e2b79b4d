"""ARG-4: what a launch was given in confidence turns up nowhere but in its own state file."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from supervisor.contracts.event import Unhealthy
from supervisor.contracts.failure import UnhealthyTimeout
from supervisor.contracts.instance import InstanceView
from supervisor.lifecycle.errors import LaunchRefused
from tests.lifecycle.house import Home, tune
from tests.parts.stub import interpreter

pytestmark = pytest.mark.anyio

FLAG, EQUALS, VARIABLE, HUB, PROXY = (f"s3cr3t-{it}-value" for it in ("1", "2", "3", "4", "5"))
MEMBER, NESTED, SIGNED, SHELL = (f"s3cr3t-{it}-value" for it in ("6", "7", "8", "9"))
SECRETS = (FLAG, EQUALS, VARIABLE, HUB, PROXY, MEMBER, NESTED, SIGNED, SHELL)
GIVEN: dict[str, Any] = {
    "extra_args": (
        *("--api-key", FLAG, f"--api-key={EQUALS}", "--hf-token", HUB),
        *("--x", f'{{"passphrase": "{MEMBER}", "auth": {{"user": ["{NESTED}"]}}}}'),
        *("--url", f"https://host/model?se=1&sig={SIGNED}"),
        *("--run", f"MY_TOKEN={SHELL} serve"),
    ),
    "env": {"HF_TOKEN": VARIABLE, "HTTPS_PROXY": f"http://user:{PROXY}@proxy:1"},
}

TELLS_ALL = """
import http.server, json, os, sys
said = json.dumps([sys.argv, dict(os.environ)])
print(said, flush=True)

class Handler(http.server.BaseHTTPRequestHandler):
    asked = 0

    def do_GET(self):
        Handler.asked += 1
        well = os.environ["WELL"] == "always" or (os.environ["WELL"] == "once" and self.asked == 1)
        self.send_response(200 if well else 503)
        body = b"{}" if well else os.environ[os.environ["LEAKS"]].encode()
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        print(said, flush=True)

if os.environ["WELL"] == "exits":
    sys.exit(1)
port = int(sys.argv[sys.argv.index("--port") + 1])
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def talkative(home: Home) -> str:
    """An engine that tells everybody all it was given, in its log and in its health."""
    path = home.folder / "talkative"
    path.write_text(f"#!{interpreter()} -S\n{TELLS_ALL}")
    path.chmod(0o755)
    return str(path)


def given(well: str, leaks: str = "HF_TOKEN") -> dict[str, Any]:
    env = GIVEN["env"]
    assert isinstance(env, dict)
    return GIVEN | {"env": env | {"WELL": well, "LEAKS": leaks}}


def nothing_in(text: str) -> None:
    assert [secret for secret in SECRETS if secret in text] == []


def everything_told(home: Home) -> str:
    events = b"\n".join(it.encoded for it in home.events).decode()
    views: list[InstanceView] = [*home.supervisor.list(ended=True)]
    return events + msgspec.json.encode(views).decode()


async def test_of_a_ready_engine_nothing_is_told(
    home: Home, capfd: pytest.CaptureFixture[str]
) -> None:
    params = home.params("x", binary=talkative(home), **given("always"))
    nothing_in(msgspec.json.encode(await home.supervisor.plan(params)).decode())
    view = await home.supervisor.launch(params)
    nothing_in(msgspec.json.encode(view).decode())
    log = Path(view.log_path or "")
    assert all(it in text_of(log) for it in (FLAG, EQUALS, VARIABLE, HUB, PROXY))
    nothing_in(home.supervisor.redactor("x")(text_of(log)))
    nothing_in(
        msgspec.json.encode(await home.supervisor.stop("x", nonce=None, grace_ms=0)).decode()
    )
    nothing_in(home.supervisor.redactor("x")(text_of(log)))
    nothing_in(everything_told(home))
    nothing_in("".join(capfd.readouterr()))
    plan = next(json.loads(it.encoded)["plan"] for it in home.events if b'"plan"' in it.encoded)
    assert {"HF_TOKEN", "HTTPS_PROXY", "WELL"} <= set(plan["env"])


async def test_of_a_failed_launch_nothing_is_told(home: Home) -> None:
    with pytest.raises(LaunchRefused) as caught:
        await home.launch(binary=talkative(home), **given("exits"))
    nothing_in(str(caught.value.failure))
    assert "HF_TOKEN" in caught.value.failure.log_tail  # type: ignore[union-attr]
    nothing_in(everything_told(home))


async def test_of_what_a_probe_was_told_no_secret_is_passed_on(home: Home) -> None:
    with pytest.raises(LaunchRefused) as caught:
        await home.launch(binary=talkative(home), ready_deadline_ms=400, **given("never"))
    failure = caught.value.failure
    assert isinstance(failure, UnhealthyTimeout)
    assert "503" in (failure.last_probe or "")
    nothing_in(str(failure) + everything_told(home))


@pytest.mark.parametrize("leaks", ["HF_TOKEN", "HTTPS_PROXY"])
async def test_of_an_unhealthy_engine_nothing_is_told(
    home: Home, monkeypatch: pytest.MonkeyPatch, leaks: str
) -> None:
    tune(monkeypatch, RELAXED_S=0.05)
    await home.launch(binary=talkative(home), **given("once", leaks))
    assert "503" in (await home.seen(Unhealthy)).reason
    view = home.supervisor.get("x")
    assert "503" in (view.health.last or "")
    nothing_in(msgspec.json.encode(view).decode())
    nothing_in(everything_told(home))
    await home.stop(grace_ms=0)


def text_of(path: Path) -> str:
    return path.read_text()
