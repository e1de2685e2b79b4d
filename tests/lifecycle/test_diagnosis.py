"""What a failure says of its cause, where the cause is far up in the log or the engine stays."""

import re
from pathlib import Path

import pytest

from supervisor.contracts.event import Exited
from supervisor.contracts.failure import ExitedEarly, UnhealthyTimeout
from supervisor.engines.signatures import DOOM
from tests.lifecycle.house import A, Home, free_port, until

pytestmark = pytest.mark.anyio

BAD_FLAG = "error: invalid argument: --no-such-flag"


async def test_a_cause_that_much_was_written_behind(home: Home) -> None:
    """More than is shown: vLLM writes 15 KB of tracebacks behind its root cause (measured)."""
    failure = await home.refused(
        binary=home.stub(say=BAD_FLAG, flood=60_000, load=600, exit_after=0.3, exit_code=1)
    )
    assert isinstance(failure, ExitedEarly)
    assert failure.diagnosis
    assert failure.diagnosis.evidence == BAD_FLAG
    assert BAD_FLAG not in failure.log_tail


async def test_an_engine_that_stays_in_vain_is_not_waited_for(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mlx_lm.server does so: its generation thread dies, and the process stays for ever."""
    monkeypatch.setitem(DOOM, "llamacpp", re.compile("thread died"))
    died = f"thread died\\n{BAD_FLAG}"
    failure = await home.refused(
        binary=home.stub(say=died, load=600, loading="503"), ready_deadline_ms=600_000
    )
    assert isinstance(failure, UnhealthyTimeout)
    assert failure.waited_ms < 60_000
    assert failure.diagnosis
    assert failure.diagnosis.evidence == BAD_FLAG
    assert failure.last_probe
    assert "HTTP 503" in failure.last_probe
    await home.again(binary=home.stub())


async def test_an_illegal_instruction(home: Home) -> None:
    failure = await home.refused(binary=home.stub(load=600, exit_after=0.1, exit_by="SIGILL"))
    assert isinstance(failure, ExitedEarly)
    assert failure.signal == "SIGILL"
    assert failure.diagnosis
    assert failure.diagnosis.code == "wrong-cpu"


async def test_tabbyapi_that_moves_to_the_next_port(home: Home, tmp_path: Path) -> None:
    """It says so, and would be ready where nobody looks for it; its lines break at 80 columns."""
    model = tmp_path / "models" / "m"
    model.mkdir(parents=True)
    (model / "config.json").write_text("{}")
    port = free_port()
    moved = f"WARNING:  Port {port} is currently in use. Switching to \\n{port + 1}."
    failure = await home.refused(
        engine="exllamav3",
        binary=home.stub("python", say=moved, loading="refuse", load=600),
        model_path=str(model),
        devices=(A,),
        port=port,
    )
    assert isinstance(failure, UnhealthyTimeout)
    assert failure.diagnosis
    assert failure.diagnosis.code == "port-in-use"
    assert str(port) in failure.diagnosis.evidence
    assert "moves to the next one" in failure.diagnosis.summary


async def test_an_exit_after_readiness_is_explained_as_well(home: Home) -> None:
    """vLLM ends with 0 when its engine core was killed (seen on the real one); its log tells."""
    died = "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue."
    model = home.folder / "m"
    model.mkdir()
    (model / "config.json").write_text("{}")
    await home.launch(
        engine="vllm",
        binary=home.stub("vllm", say=died, exit_after=0.5, exit_code=0),
        model_path=str(model),
        devices=(A,),
    )
    told = await home.seen(Exited)
    assert told.exit_code == 0
    assert told.diagnosis
    assert told.diagnosis.code == "engine-died"
    assert "ends with 0 even when" in told.diagnosis.summary
    await until(lambda: home.supervisor.get("x").exit is not None)
    ended = home.supervisor.get("x").exit
    assert ended is not None
    assert ended.diagnosis == told.diagnosis
