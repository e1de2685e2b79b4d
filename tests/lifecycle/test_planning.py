"""From params to a plan, for engines of every kind: what the launch path itself puts into it."""

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from supervisor.contracts.config import Config
from supervisor.contracts.engine import LaunchPlan, ServingOptions
from supervisor.contracts.failure import NoCapacity, SpawnFailed, UnsupportedFailure
from supervisor.lifecycle.errors import InvalidLaunch
from tests.lifecycle.house import POOL, A, B, Home, opened

HOUR_MS = 3_600_000


@pytest.fixture
def model(tmp_path: Path) -> str:
    folder = tmp_path / "qwen"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3"}))
    return str(folder)


async def planned(home: Home, **members: Any) -> LaunchPlan:
    return (await home.supervisor.plan(home.params("y", **members))).plan


async def environment(home: Home, tmp_path: Path, **members: Any) -> dict[str, str]:
    """What the engine finds in its environment; a plan shows the names alone."""
    path = tmp_path / "facts.json"
    await home.launch(binary=home.stub(dump=str(path)), **members)
    await home.stop()
    env: dict[str, str] = json.loads(path.read_text())["env"]
    return env


@pytest.mark.parametrize(
    ("members", "seconds"),
    [
        ({}, "1200"),
        ({"ready_deadline_ms": HOUR_MS}, "3600"),
        ({"ready_deadline_ms": 60_000}, "600"),
        ({"ready_deadline_ms": HOUR_MS, "stall_ms": 60_000}, "14400"),
        (
            {"ready_deadline_ms": HOUR_MS, "stall_ms": 60_000, "ready_cap_ms": 2 * HOUR_MS},
            "7200",
        ),
    ],
)
async def test_an_engines_own_limit_follows_the_deadline(
    home: Home, tmp_path: Path, model: str, members: dict[str, Any], seconds: str
) -> None:
    """With a deadline that moves, the end of its way; never below what vLLM would take itself."""
    env = await environment(home, tmp_path, engine="vllm", model_path=model, **members)
    assert env["VLLM_ENGINE_READY_TIMEOUT_S"] == seconds


async def test_named_devices_decide_the_accelerator(home: Home, tmp_path: Path, model: str) -> None:
    sglang = {"engine": "sglang", "model_path": model}
    env = await environment(home, tmp_path, devices=(A,), **sglang)
    assert "SGLANG_USE_CPU_ENGINE" not in env
    assert env["CUDA_VISIBLE_DEVICES"] == A
    env = await environment(home, tmp_path, devices=("cpu:0",), **sglang)
    assert env["SGLANG_USE_CPU_ENGINE"] == "1"
    assert env["CUDA_VISIBLE_DEVICES"] == ""
    failure = await home.refused(engine="exllamav3", model_path=model, devices=("cpu:0",))
    assert isinstance(failure, UnsupportedFailure)
    assert "the accelerator is cpu" in failure.reason


async def test_what_parallelism_demands_is_leased(home: Home, model: str) -> None:
    options = ServingOptions(tensor_parallel=2)
    plan = await planned(home, engine="vllm", model_path=model, options=options, device_count=2)
    assert set(plan.devices) == {A, B}
    assert plan.argv[plan.argv.index("--tensor-parallel-size") + 1] == "2"


@pytest.mark.parametrize(
    ("engine", "extra"),
    [
        ("vllm", ("--tensor-parallel-size", "2")),
        ("vllm", ("-tp=2",)),
        ("vllm", ("--pipeline_parallel_size=2",)),
        ("vllm", ("-dp", "2")),
        ("sglang", ("--tp", "2")),
        ("sglang", ("--dp-size=2",)),
    ],
)
async def test_what_a_launchs_own_words_demand_is_leased_or_refused(
    home: Home, model: str, engine: str, extra: tuple[str, ...]
) -> None:
    members: dict[str, Any] = {"engine": engine, "model_path": model, "extra_args": extra}
    members["devices"] = UNSET
    assert set((await planned(home, **members)).devices) == {A, B}
    refused = r"ask for 2 devices \(.*2\), but devices names 1; .* leave .* out to have 2 chosen"
    with pytest.raises(InvalidLaunch, match=refused):
        await planned(home, **members | {"devices": (A,)})
    with pytest.raises(InvalidLaunch, match=r"ask for 2 devices .*, but deviceCount is 1"):
        await planned(home, **members, device_count=1)
    failure = await home.refused(**{**members, "extra_args": (*extra, *_more(engine))})
    assert isinstance(failure, NoCapacity)
    assert (failure.need, failure.free) == (4, 2)


def _more(engine: str) -> tuple[str, ...]:
    """Twice as many, whatever was said before."""
    four = {"vllm": ("-tp", "4", "-pp", "1", "-dp", "1")}
    return four.get(engine, ("--tp", "4", "--dp", "1"))


async def test_shares_are_one_a_device(home: Home) -> None:
    shares = await planned(home, devices=UNSET, extra_args=("-ts", "3,1"))
    assert set(shares.devices) == {A, B}
    with pytest.raises(InvalidLaunch, match=r"ask for 2 devices \(-ts 3,1\), but devices names 1"):
        await planned(home, devices=(A,), extra_args=("-ts", "3,1"))


@pytest.mark.parametrize("line", ["tensor-parallel-size: 2", "tensor_parallel_size: '2'  # both"])
async def test_an_engines_own_file_counts(
    home: Home, tmp_path: Path, model: str, line: str
) -> None:
    """The command line beats it, options too; a file that cannot be read is the engine's matter."""
    file = tmp_path / "vllm.yaml"
    file.write_text(f"# ours\nmax-model-len: 4096\n{line}\ncompilation-config:\n  level: 3\n")
    members: dict[str, Any] = {
        "engine": "vllm",
        "model_path": model,
        "extra_args": ("--config", str(file)),
        "devices": UNSET,
    }
    assert set((await planned(home, **members)).devices) == {A, B}
    with pytest.raises(InvalidLaunch, match=r"ask for 2 devices .*, but devices names 1"):
        await planned(home, **members | {"devices": (A,)})
    extra = (*members["extra_args"], "-tp", "1")
    assert len((await planned(home, **members | {"extra_args": extra})).devices) == 1
    os.unlink(file)
    os.mkfifo(file)
    assert len((await planned(home, **members)).devices) == 1


async def test_on_the_cpu_parallel_processes_share_it(home: Home, model: str) -> None:
    members: dict[str, Any] = {"engine": "vllm", "model_path": model, "extra_args": ("-tp", "2")}
    assert (await planned(home, **members, devices=("cpu:0",))).devices == ("cpu:0",)


async def test_a_host_without_any_other_device_has_but_one(tmp_path: Path, model: str) -> None:
    async with opened(tmp_path, config=Config(ports=POOL)) as home:
        members: dict[str, Any] = {"engine": "vllm", "model_path": model, "devices": UNSET}
        plan = await planned(home, **members, extra_args=("-tp", "2"))
        assert plan.devices == ("cpu:0",)
        options = ServingOptions(tensor_parallel=2)
        assert (await planned(home, **members, options=options)).devices == ("cpu:0",)
        failure = await home.refused(**members, device_count=2)
        assert isinstance(failure, NoCapacity)
        assert (failure.need, failure.free) == (2, 1)


@pytest.mark.parametrize(
    ("engine", "extra", "part"),
    [
        ("vllm", ("--uds", "/run/x.sock"), "--uds"),
        ("exllamav3", ("--config=c.yml",), "--config"),
        ("sglang", ("--base-gpu", "1"), "--base-gpu"),
        ("vllm", ("--device-ids", "0"), "--device-ids"),
        ("vllm", ("--port", "9001"), "9001"),
    ],
)
async def test_words_that_lead_out_of_reach_or_lease_are_invalid(
    home: Home, model: str, engine: str, extra: tuple[str, ...], part: str
) -> None:
    with pytest.raises(InvalidLaunch) as refused:
        await home.launch(
            engine=engine, model_path=model, devices=(A,), extra_args=extra, port=9000
        )
    assert part in str(refused.value)


async def test_a_refused_plan_has_a_port_that_a_launch_could_have(home: Home) -> None:
    """Not the engine's own default, which no launch of ours ever gets."""
    await home.launch(devices=(A,))
    for name, device in (("y", A), ("x", B)):
        reply = await home.supervisor.plan(home.params(name, devices=(device,)))
        assert reply.refusal is not None
        port = int(reply.plan.argv[reply.plan.argv.index("--port") + 1])
        assert POOL.first <= port <= POOL.last
    await home.stop()


async def test_a_plan_beside_a_refusal_is_that_of_the_launch_if_all_were_free(
    home: Home, model: str
) -> None:
    members: dict[str, Any] = {"engine": "vllm", "model_path": model, "device_count": 1}
    free = (await home.supervisor.plan(home.params("y", **members))).plan
    for name, card in (("one", A), ("two", B)):
        await home.launch(name, devices=(card,))
    told = await home.supervisor.plan(home.params("y", **members))
    assert "is held by" in (told.refusal or "")
    assert told.plan.devices == free.devices
    assert told.plan.env == free.env
    assert POOL.first <= told.plan.ports[0].host <= POOL.last
    for name in ("one", "two"):
        await home.stop(name)


async def test_a_taken_port_is_a_refusal_of_the_plan_as_of_the_launch(home: Home) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        told = await home.supervisor.plan(home.params("y", port=port))
        failure = await home.refused("y", port=port)
    assert isinstance(failure, SpawnFailed)
    assert f"port {port}, asked for by the launch on 127.0.0.1, is taken by " in failure.detail
    assert told.refusal is not None
    assert failure.detail in told.refusal
    assert (await home.supervisor.plan(home.params("y", port=port))).refusal is None
