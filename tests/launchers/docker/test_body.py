"""What a container engine is asked to create, for every golden container plan of every engine."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from supervisor.contracts.config import DockerConfig
from supervisor.engines.devices import apply_devices
from supervisor.launchers.base import SpawnTicket
from supervisor.launchers.docker.body import create_body
from tests.engines import golden
from tests.engines.requests import ACCELERATORS, ACCESS, GPU_A, GPU_B, request, spec_of

CONTAINERS = [path for path in golden.cases() if golden.launch_of(path).runtime == "docker"]


def body_of(*, network: str = "bridge", **changes: Any) -> dict[str, Any]:
    launch = request(**{"runtime": "docker", **changes})
    plan = apply_devices(spec_of(launch).plan(launch), ACCELERATORS, ACCESS)
    ticket = SpawnTicket(name="x", nonce="n", log_path="/log", env=plan.env)
    config = DockerConfig(network="host" if network == "host" else "bridge")
    return create_body(plan, ticket, {}, config)


@pytest.mark.parametrize("path", CONTAINERS, ids=golden.name_of)
def test_the_planned_words_arrive_one_by_one(path: Path) -> None:
    """ARG-3: no word is joined, split or expanded on the way."""
    launch = golden.launch_of(path)
    body = body_of(engine=launch.engine, **golden.given(path))
    assert body["Cmd"] == list(spec_of(launch).plan(launch).argv)
    assert "Entrypoint" not in body
    assert all(isinstance(word, str) for word in body["Cmd"])


@pytest.mark.parametrize("devices", [(GPU_A,), (GPU_B, GPU_A)])
@pytest.mark.parametrize("engine", ["vllm", "sglang", "llamacpp", "exllamav3"])
def test_gpus_are_asked_for_by_their_ids_alone(engine: str, devices: tuple[str, ...]) -> None:
    """GPU-6: a count beside ids is refused, and a text `device=0,1` is read as both."""
    (asked,) = body_of(engine=engine, devices=devices)["HostConfig"]["DeviceRequests"]
    assert asked["DeviceIDs"] == list(devices)
    assert not asked.get("Count")
    assert asked["Capabilities"] == [["gpu"]]


def test_no_gpu_is_asked_for_where_none_is_leased() -> None:
    body = body_of(devices=["cpu:0"], host={"accelerator": "cpu"})
    assert "DeviceRequests" not in body["HostConfig"]
    assert "NVIDIA_VISIBLE_DEVICES=void" in body["Env"]


def test_amd_files_and_groups_are_given_as_they_are() -> None:
    settings = body_of(devices=["amd:1a2b3c4d5e6f7081"], host={"accelerator": "rocm"})["HostConfig"]
    assert [node["PathOnHost"] for node in settings["Devices"]] == [
        *("/dev/kfd", "/dev/dri/renderD128", "/dev/dri/card1"),
    ]
    assert settings["GroupAdd"] == ["44", "992"], "numbers, for an image may lack the names"
    assert settings["SecurityOpt"] == ["seccomp=unconfined"]


def test_the_published_port_leads_to_the_images_own() -> None:
    body = body_of(engine="vllm", port=21007)
    (published,) = body["HostConfig"]["PortBindings"].items()
    assert published == ("8000/tcp", [{"HostIp": "127.0.0.1", "HostPort": "21007"}])
    assert body["Cmd"][body["Cmd"].index("--port") + 1] == "8000"


def test_what_every_container_has() -> None:
    """In the words of the API's reference, 1.41."""
    body = body_of(engine="vllm")
    assert body["Healthcheck"] == {"Test": ["NONE"]}
    settings = body["HostConfig"]
    assert (settings["Init"], settings["RestartPolicy"]) == (True, {"Name": "no"})
    assert "AutoRemove" not in settings, "it would take the exit code along"
    limits = {"max-size": str(DockerConfig().log_max_bytes), "max-file": "3"}
    assert settings["LogConfig"] == {"Type": "json-file", "Config": limits}


def test_what_a_plan_asks_of_the_kernel() -> None:
    launch = request(runtime="docker", engine="vllm")
    plan = replace(
        spec_of(launch).plan(launch),
        shm_bytes=1 << 30,
        ulimits={"memlock": -1},
        groups=(44,),
        workdir="/w",
        bind_host="0.0.0.0",
        security_opts=("seccomp=unconfined",),
    )
    ticket = SpawnTicket(name="x", nonce="n", log_path="/log", env={})
    body = create_body(plan, ticket, {"a": "b"}, DockerConfig())
    settings = body["HostConfig"]
    assert (body["WorkingDir"], body["Labels"]) == ("/w", {"a": "b"})
    assert settings["ShmSize"] == 1 << 30
    assert settings["Ulimits"] == [{"Name": "memlock", "Soft": -1, "Hard": -1}]
    assert (settings["GroupAdd"], settings["SecurityOpt"]) == (["44"], ["seccomp=unconfined"])
    (published,) = settings["PortBindings"].values()
    assert [it["HostIp"] for it in published] == ["0.0.0.0"]


def test_on_the_hosts_network_it_listens_where_the_launch_asks() -> None:
    body = body_of(engine="vllm", port=21007, hostNetwork=True, network="host")
    assert "PortBindings" not in body["HostConfig"]
    assert body["Cmd"][body["Cmd"].index("--port") + 1] == "21007"
    assert body["Cmd"][body["Cmd"].index("--host") + 1] == "127.0.0.1"


def test_caches_are_volumes_and_models_are_mounts() -> None:
    mounts = body_of(engine="vllm")["HostConfig"]["Mounts"]
    kinds = [(it["Type"], it["Source"], it["Target"], it["ReadOnly"]) for it in mounts]
    assert kinds == [
        ("bind", "/data/qwen3", "/models/qwen3", True),
        ("volume", "engine-supervisor-huggingface", "/root/.cache/huggingface", False),
        ("volume", "engine-supervisor-vllm", "/root/.cache/vllm", False),
    ]
