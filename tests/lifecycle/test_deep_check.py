"""A deep check makes a ready engine do a little of its real work, where the launch asks for it."""

from pathlib import Path

import anyio
import pytest

from supervisor.contracts.event import Unhealthy
from supervisor.lifecycle import order
from tests.lifecycle.house import Home, tune
from tests.parts import real_llama

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    tune(monkeypatch, RELAXED_S=0.02)
    monkeypatch.setattr(order, "SHORTEST_DEEP_CHECK_MS", 1)


@pytest.mark.parametrize("with_keys", [False, True])
async def test_a_real_server_answers_it(home: Home, tmp_path: Path, with_keys: bool) -> None:
    keys = tmp_path / "keys"
    keys.write_text("open-sesame-of-a-file\n")
    extra = ("--api-key-file", str(keys)) if with_keys else ()
    server = real_llama.require("genuine-llama-server")
    model = real_llama.tiny_gguf()
    await home.launch(binary=str(server), model_path=str(model), deep_check_ms=1, extra_args=extra)
    with anyio.fail_after(20):
        # The view is asked, for no event tells of a probe that went well.
        while home.supervisor.get("x").health.last != "POST /v1/completions: HTTP 200":  # noqa: ASYNC110
            await anyio.sleep(0.02)
    assert home.supervisor.get("x").health.misses == 0
    assert not home.of(Unhealthy)
    await home.stop()
