"""Every command: its output, its exit code, and what it asks of the daemon."""

import asyncio
import json
from pathlib import Path

import msgspec
import pytest

from supervisor.cli import launching, main
from supervisor.client import RpcError
from supervisor.contracts import rpc
from supervisor.contracts.engine import ServingOptions
from supervisor.contracts.failure import ExitedEarly, UnhealthyTimeout
from supervisor.contracts.instance import LaunchParams
from supervisor.contracts.rpc import ErrorObject, Notification
from tests.cli.conftest import Ran, Run
from tests.rpc.fake import Served, view

LAUNCH = ("launch", "a", "--engine", "vllm", "--model-path", "/models/m")


def test_launch_says_where_it_is_ready(run: Run, served: Served) -> None:
    assert run(*LAUNCH) == Ran(0, "a ready 21000 D0\n", "")
    assert served.supervisor.launched == [
        LaunchParams(name="a", engine="vllm", model_path="/models/m")
    ]


def test_every_flag_reaches_the_daemon(run: Run, served: Served) -> None:
    assert run(
        "launch", "a", "--engine=sglang", "--model-path=/m", "--recipe=r", "--runtime=process",
        "--devices=D0,D1", "--device-count=2", "--no-exclusive", "--memory-bytes=2GiB",
        "--port=8000", "--served-model-name=x y", "--binary=/b", "--docker-image=i",
        "--env=A=1", "--env=B=x=y", "--restart=never", "--ready-timeout=2m", "--install",
        "--stall-ms=60000", "--ready-cap-ms=900000",
        "--no-wait", "--tensor-parallel=2", "--pipeline-parallel=1", "--max-context-length=4096",
        "--memory-fraction=0.5", "--max-concurrent-requests=8", "--kv-cache-dtype=fp8",
        "--dtype=auto", "--quantization=awq", "--no-trust-remote-code", "--tool-call-parser=t",
        "--reasoning-parser=r", "--", "--flag", "--", "-x",
    ).code == 0  # fmt: skip
    assert served.supervisor.launched == [
        LaunchParams(
            name="a",
            engine="sglang",
            model_path="/m",
            recipe="r",
            runtime="process",
            device_count=2,
            devices=("D0", "D1"),
            exclusive=False,
            memory_bytes=2 << 30,
            port=8000,
            served_model_name="x y",
            options=ServingOptions(
                tensor_parallel=2,
                pipeline_parallel=1,
                max_context_length=4096,
                memory_fraction=0.5,
                max_concurrent_requests=8,
                kv_cache_dtype="fp8",
                dtype="auto",
                quantization="awq",
                trust_remote_code=False,
                tool_call_parser="t",
                reasoning_parser="r",
            ),
            extra_args=("--flag", "--", "-x"),
            env={"A": "1", "B": "x=y"},
            docker_image="i",
            binary="/b",
            restart="never",
            ready_deadline_ms=120_000,
            stall_ms=60_000,
            ready_cap_ms=900_000,
            install="missing",
            wait=False,
        )
    ]


def test_the_knobs_are_those_of_the_contract() -> None:
    assert tuple(name for name, _ in launching._KNOBS) == ServingOptions.__struct_fields__


def test_a_command_is_taken_as_it_stands(run: Run, served: Served) -> None:
    assert run(*LAUNCH, "--command", "--", "/bin/engine", "--json").code == 0
    assert served.supervisor.launched[0].command == ("/bin/engine", "--json")


def test_a_relative_model_is_the_callers(
    run: Run, served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run("launch", "a", "--engine", "vllm", "--model-path", "m.gguf")
    assert served.supervisor.launched[0].model_path == str(tmp_path / "m.gguf")


def test_a_failed_launch_shows_why_and_what_next(run: Run, served: Served) -> None:
    tail = "".join(f"line {n}\n" for n in range(20)) + "\x1b[31mboom\n"
    served.supervisor.refusals["a"] = ExitedEarly(exit_code=1, signal=None, log_tail=tail)
    found = run(*LAUNCH)
    assert (found.code, found.out) == (1, "")
    assert "the engine exited with code 1 before it was ready" in found.err
    assert "  | \\x1b[31mboom\n" in found.err
    assert "line 10\n" not in found.err
    assert "enginectl logs a" in found.err


def test_a_name_that_is_taken_and_a_launch_that_is_invalid(run: Run) -> None:
    run(*LAUNCH)
    taken = run(*LAUNCH)
    assert taken.code == 1
    assert "enginectl stop a" in taken.err
    assert run("launch", "b").code == 2


def test_interrupted_a_launch_goes_on(
    run: Run, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr("supervisor.client.Client.raw", interrupt)
    found = run(*LAUNCH)
    assert found.code == 130
    assert "goes on" in found.err
    assert "enginectl cancel a" in found.err


def test_on_a_terminal_the_steps_are_shown(
    run: Run, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.supervisor.slow["a"] = asyncio.Event()
    show = launching.show_progress

    def show_and_go_on(notice: Notification) -> None:
        show(notice)
        served.release("a")

    monkeypatch.setattr(launching, "show_progress", show_and_go_on)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    found = run(*LAUNCH)
    assert found.out == "a ready 21000 D0\n"
    assert found.err.startswith("enginectl: a: reserved port 1 and D0\n")


@pytest.mark.parametrize(
    ("kind", "members", "text"),
    [
        ("launching", {"attempt": 1}, "starting"),
        ("launching", {"attempt": 2}, "starting, attempt 2"),
        ("spawned", {"logPath": "/l"}, "running; its log is /l"),
        ("phase", {"phase": "loading", "detail": "50 %"}, "loading 50 %"),
        ("restarting", {"retryAt": "soon"}, "failed; the next attempt is at soon"),
        ("warning", {"detail": "\x1b[2J"}, "warning: \\x1b[2J"),
        ("ready", {"port": 1}, None),
    ],
)
def test_steps(
    kind: str, members: dict[str, object], text: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    event = {"kind": kind, "instance": "a", **members}
    params = msgspec.json.encode({"subscription": "s1", "event": event})
    launching.show_progress(Notification(method="event", params=msgspec.Raw(params)))
    assert capsys.readouterr().err == ("" if text is None else f"enginectl: a: {text}\n")


@pytest.mark.parametrize(
    ("words", "method", "params"),
    [
        (("ps",), "instance.list", {}),
        (("ps", "-a"), "instance.list", {"all": True}),
        (("engines",), "engine.list", {}),
        (("plan", "b", "--engine", "vllm"), "engine.plan", {"name": "b", "engine": "vllm"}),
        (("wait", "a"), "instance.wait", {"name": "a"}),
        (("logs", "a"), "instance.logs", {"name": "a"}),
    ],
)
def test_json_is_the_result_byte_for_byte(
    run: Run, served: Served, words: tuple[str, ...], method: str, params: object
) -> None:
    served.supervisor.views["a"] = view("a")
    assert run(*words, "--json").out == run("rpc", method, json.dumps(params)).out
    assert run("--json", *words).out.count("\n") == 1


def test_ps_is_a_table(run: Run, served: Served) -> None:
    served.supervisor.views["a"] = view("a")
    served.supervisor.views["gone"] = view(
        "gone", "exited", UnhealthyTimeout(waited_ms=1, log_tail=""), port=0
    )
    assert [line.split()[:5] for line in run("ps").out.splitlines()] == [
        ["NAME", "ENGINE", "STATE", "PORT", "DEVICES"],
        ["a", "vllm", "ready", "21000", "D0"],
    ]
    assert run("ps", "-a").out.splitlines()[2].split()[2:4] == ["exited", "-"]
    assert run("ps", "-a").out.endswith("unhealthy-timeout\n")


def test_devices_tell_unknown_from_unsupported(run: Run) -> None:
    line = run("devices").out.splitlines()[1]
    assert line.startswith("D0      H200  140.0 GiB  n/a   3 %   n/a   unsupported  a  ")
    documents = run("devices", "--json").out.splitlines()
    assert json.loads(documents[0])["accelerators"][0]["id"] == "D0"
    assert json.loads(documents[1])["leases"][0]["device"] == "D0"


def test_engines_and_plan(run: Run) -> None:
    assert "no: needs Metal" in run("engines").out
    plan = run("plan", "a", "--engine", "vllm").out
    assert "argv     vllm serve '/models/my model'\n" in plan
    assert "env      A\n" in plan
    assert "secret" not in plan


def test_stop_and_cancel(run: Run, served: Served) -> None:
    run(*LAUNCH)
    assert run("stop", "a", "--grace", "2s", "--nonce", "n").out == "a stopped\n"
    assert served.supervisor.stopped == [("a", "n", 2000)]
    assert run("stop", "b").code == 4
    assert "ps -a" in run("cancel", "b").err


def test_wait(run: Run, served: Served) -> None:
    served.supervisor.views["a"] = view("a")
    assert run("wait", "a") == Ran(0, "a ready 21000 D0\n", "")
    served.supervisor.slow["a"] = asyncio.Event()
    late = run("wait", "a", "--for", "exited", "--timeout", "10ms")
    assert late.code == 124
    del served.supervisor.slow["a"]
    served.supervisor.views["a"] = view("a", "exited")
    assert run("wait", "a").code == 3


def test_logs(run: Run, served: Served, tmp_path: Path) -> None:
    served.supervisor.views["a"] = view("a", "exited")
    (tmp_path / "a.log").write_text("one\ntwo\tx\nthree \x1b[31mred\n")
    assert run("logs", "a", "-n", "2").out == "two\tx\nthree red\n"
    assert run("logs", "a", "-f").out == "one\ntwo\tx\nthree red\n"
    followed = [json.loads(line) for line in run("logs", "a", "-f", "--json").out.splitlines()]
    assert followed[0]["lines"] == ["one", "two\tx", "three red"]
    assert run("logs", "b").code == 4


def test_events(run: Run) -> None:
    assert run("events").out == ""
    run(*LAUNCH)
    shown = run("events").out.splitlines()
    assert [line.split()[1:4] for line in shown] == [
        ["1", "reserved", "a"],
        ["2", "phase", "a"],
        ["3", "ready", "a"],
    ]
    assert shown[1].endswith('phase=loading detail="50 %"')
    assert run("events", "-n", "1").out == shown[2] + "\n"
    assert run("events", "--after", "e:1", "--kinds", "ready").out == shown[2] + "\n"
    assert run("events", "--after", "e:3").out == ""
    assert run("events", "--instance", "b").out == ""
    assert json.loads(run("events", "-n", "1", "--json").out)["kind"] == "ready"
    expired = run("events", "--after", "x:1")
    assert expired.code == 1
    assert "--after" in expired.err


def test_rpc_prints_what_came(run: Run) -> None:
    assert json.loads(run("rpc", "supervisor.info").out)["version"] == "0.1.0"
    unknown = run("rpc", "no.such")
    assert (unknown.code, "error -32601" in unknown.err) == (2, True)
    assert run("rpc", "supervisor.info", "{nonsense").code == 2
    assert run("rpc", "supervisor.info", '{"x":1}').code == 2


def test_config_check(run: Run, tmp_path: Path) -> None:
    good = tmp_path / "good.toml"
    good.write_text('[recipes.x]\nengine = "vllm"\nmodel-path = "/m"\n')
    assert run("config", "check", str(good)) == Ran(0, f"{good} is valid (1 recipe)\n", "")
    bad = tmp_path / "bad.toml"
    bad.write_text("[ports]\nfirst = 'x'\n")
    found = run("config", "check", str(bad))
    assert (found.code, "ports.first" in found.err) == (1, True)
    assert run("config", "check", str(tmp_path / "none")).code == 1


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("nonsense",),
        ("launch",),
        ("launch", "a", "--engine", "nope"),
        ("launch", "a", "--env", "novalue"),
        ("stop", "a", "--grace", "soon"),
        ("ps", "--", "x"),
        ("events", "--after", "3"),
        ("logs", "a", "-n", "-1"),
    ],
)
def test_wrong_usage_is_2(run: Run, words: tuple[str, ...]) -> None:
    found = run(*words)
    assert found.code == 2
    assert found.err


def test_help_and_version_are_no_errors(run: Run) -> None:
    assert run("--help").code == run("launch", "--help").code == run("--version").code == 0


def test_no_daemon_and_a_daemon_that_leaves(
    run: Run, served: Served, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["--socket", str(tmp_path / "none"), "ps"]) == 69
    assert "engined" in capfd.readouterr().err
    served.supervisor.leaving = True
    assert run(*LAUNCH).code == 69


def test_the_environment_names_the_socket(
    served: Served, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ENGINE_SUPERVISOR_SOCKET", served.path)
    assert main(["ps"]) == 0
    assert capfd.readouterr().out.startswith("NAME")


def test_not_allowed_is_77(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> bytes:
        raise RpcError(ErrorObject(code=rpc.FORBIDDEN, message="no"))

    monkeypatch.setattr("supervisor.client.Client.raw", refuse)
    assert run("ps").code == 77
