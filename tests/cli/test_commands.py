"""Every command: its output, its exit code, and what it asks of the daemon."""

import asyncio
import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from supervisor.cli import checking, launching, main
from supervisor.client import RpcError
from supervisor.contracts import rpc
from supervisor.contracts.engine import ServingOptions
from supervisor.contracts.event import LaunchFailed, Restarting
from supervisor.contracts.failure import (
    AlreadyRunning,
    Diagnosis,
    ExitedEarly,
    SpawnFailed,
    UnhealthyTimeout,
)
from supervisor.contracts.instance import LaunchParams, PinnedHandle
from supervisor.contracts.rpc import ErrorObject, Notification, Unreadable
from supervisor.lifecycle.errors import LaunchRefused
from tests.cli.conftest import Ran, Run
from tests.rpc.fake import AT, Served, view

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
        "--env=A=1", "--env=B=x=y", "--restart=never", "--ready-timeout=2m",
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


def test_the_line_that_tells_the_cause_is_shown_wherever_it_stands(
    run: Run, served: Served
) -> None:
    cause = Diagnosis(code="c", summary="it is broken", hint="mend it", evidence="the very line")
    tail = "the very line\n" + "".join(f"line {n}\n" for n in range(50))
    served.supervisor.refusals["a"] = ExitedEarly(
        exit_code=1, signal=None, log_tail=tail, diagnosis=cause
    )
    found = run(*LAUNCH)
    assert "it is broken; mend it" in found.err
    assert found.err.count("  | the very line\n  | …\n") == 1


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
    show = launching.Progress.__call__

    def show_and_go_on(progress: launching.Progress, notice: Notification) -> None:
        show(progress, notice)
        served.release("a")

    monkeypatch.setattr(launching.Progress, "__call__", show_and_go_on)
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
        ("warning", {"detail": "\x1b[2J"}, "warning: \\x1b[2J"),
        ("ready", {"port": 1}, None),
    ],
)
def test_steps(
    kind: str, members: dict[str, object], text: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    notice = _notice(kind, **members)
    launching.Progress(steps=True)(notice)
    said = "" if text is None else f"enginectl: a: {text}\n"
    assert capsys.readouterr().err == said
    launching.Progress(steps=False)(notice)
    assert capsys.readouterr().err == (said if kind == "warning" else "")


def _notice(kind: str, **members: object) -> Notification:
    event = {"kind": kind, "instance": "a", **members}
    params = msgspec.json.encode({"subscription": "s1", "event": event})
    return Notification(method="event", params=msgspec.Raw(params))


@pytest.mark.parametrize(
    ("failure", "why"),
    [
        (
            {"kind": "exited-early", "logTail": "x\n", "diagnosis": {"summary": "no memory"}},
            "exited-early, no memory",
        ),
        ({"kind": "exited-early", "logTail": "one\n\x1b[2Jtwo\n\n"}, "exited-early, \\x1b[2Jtwo"),
        ({"kind": "unhealthy-timeout", "logTail": ""}, "unhealthy-timeout"),
        ({"kind": "spawn-failed", "detail": "disk full"}, "spawn-failed, disk full"),
    ],
)
@pytest.mark.parametrize("steps", [True, False])
def test_why_an_attempt_failed_and_when_the_next_one_is(
    failure: dict[str, object], why: str, steps: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    tell = launching.Progress(steps=steps)
    tell(_notice("launch-failed", attempt=1, failure=failure))
    assert capsys.readouterr().err == ""
    tell(_notice("restarting", attempt=2, retryAt="2020-01-01T00:00:00.000Z", reason="back-off"))
    assert capsys.readouterr().err == f"enginectl: a: attempt 1 failed: {why}; attempt 2 now\n"
    tell(_notice("restarting", attempt=3, retryAt="2020-01-01T00:00:00.000Z", reason="requested"))
    assert capsys.readouterr().err == "enginectl: a: attempt 3 now (requested)\n"


def test_on_a_pipe_a_failed_attempt_reaches_stderr(
    run: Run, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = served.supervisor
    early = ExitedEarly(exit_code=1, signal=None, log_tail="boom\n")

    async def fail_once(_: str) -> None:
        fake.bus.publish(LaunchFailed(instance="a", failure=early, attempt=1, log_path=None))
        fake.bus.publish(Restarting(instance="a", attempt=2, retry_at=AT, reason="back-off"))
        await asyncio.sleep(0.1)

    monkeypatch.setattr(fake, "_pass", fail_once)
    assert run(*LAUNCH) == Ran(
        0,
        "a ready 21000 D0\n",
        "enginectl: a: attempt 1 failed: exited-early, boom; attempt 2 now\n",
    )


def test_under_json_nothing_is_told_but_the_one_error(
    run: Run, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = served.supervisor
    early = ExitedEarly(exit_code=1, signal=None, log_tail="boom\n")

    async def fail(_: str) -> None:
        fake.bus.publish(LaunchFailed(instance="a", failure=early, attempt=1, log_path=None))
        await asyncio.sleep(0.1)
        raise LaunchRefused(early)

    monkeypatch.setattr(fake, "_pass", fail)
    found = run("--json", *LAUNCH)
    assert (found.code, found.out) == (1, "")
    assert json.loads(found.err)["data"]["kind"] == "exited-early"


def test_errors_under_json_are_the_daemons_own(run: Run, served: Served, tmp_path: Path) -> None:
    served.supervisor.refusals["a"] = ExitedEarly(exit_code=1, signal=None, log_tail="x")
    found = run(*LAUNCH, "--json")
    assert (found.code, found.out, found.err.count("\n")) == (1, "", 1)
    error = json.loads(found.err)
    assert (error["code"], error["data"]["kind"]) == (1006, "exited-early")
    served.supervisor.views["a"] = view("a", "exited")
    waited = run("wait", "a", "--json")
    assert (waited.code, json.loads(waited.err)["code"]) == (3, 1008)
    unknown = run("rpc", "no.such", "--json")
    assert (unknown.code, json.loads(unknown.err)["code"]) == (2, rpc.METHOD_NOT_FOUND)
    nobody = run("ps", "--json", "--socket", str(tmp_path / "none"))
    assert (nobody.code, json.loads(nobody.err)["code"]) == (69, rpc.UNAVAILABLE)


def test_a_hint_that_the_daemon_gave_is_not_repeated(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> bytes:
        said = "no instance 'x'; `enginectl ps -a` lists them"
        raise RpcError(ErrorObject(code=rpc.NO_SUCH_INSTANCE, message=said))

    monkeypatch.setattr("supervisor.client.Client.raw", refuse)
    assert run("stop", "x").err.count("enginectl ps -a") == 1


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


@pytest.mark.parametrize("word", ["nan", "inf", "-inf", "half"])
@pytest.mark.parametrize("command", ["plan", "launch"])
def test_a_fraction_is_a_number(run: Run, served: Served, command: str, word: str) -> None:
    told = run(command, *LAUNCH[1:], f"--memory-fraction={word}")
    assert told.code == 2
    assert "--memory-fraction" in told.err
    assert repr(word) in told.err
    assert served.supervisor.launched == []


def test_ps_is_a_table(run: Run, served: Served) -> None:
    served.supervisor.views["a"] = view("a")
    served.supervisor.views["gone"] = view(
        "gone", "exited", UnhealthyTimeout(waited_ms=1, log_tail=""), port=0
    )
    assert [line.split()[:5] for line in run("ps").out.splitlines()] == [
        ["NAME", "ENGINE", "STATE", "PORT", "DEVICES"],
        ["a", "vllm", "ready", "21000", "D0"],
    ]
    assert run("ps").out.splitlines()[1].split()[5] == "4711"
    ended = run("ps", "-a").out.splitlines()[2].split()
    assert (ended[2:4], ended[5]) == (["exited", "-"], "-")
    assert run("ps", "-a").out.endswith("unhealthy-timeout\n")


def test_ps_names_what_cannot_be_read_and_what_frees_it(run: Run, served: Served) -> None:
    """Otherwise launch says that the name is taken, stop that there is none, and ps is silent."""
    lost = Unreadable(name="x", path="/q/x.json", reason="cut", devices=("D0",), pids=(7,))
    served.supervisor.unread = (lost, replace(lost, name="y", devices=None, pids=()))
    for words in (("ps",), ("ps", "-a")):
        told = run(*words)
        assert told.code == 0
        assert "x: its record cannot be read (cut); it keeps D0, alive: pid 7" in told.err
        assert "`enginectl release x`" in told.err
        assert "it keeps all devices that nobody claims\n" in told.err
    assert json.loads(run("ps", "--json").out)["unreadable"][0]["pids"] == [7]
    assert run("release", "x").code == 1
    assert run("release", "--force", "x") == Ran(0, "x released D0\n", "")


def test_ps_says_how_soon_the_next_attempt_is(run: Run, served: Served) -> None:
    moment = (datetime.now(UTC) + timedelta(seconds=90)).isoformat()
    served.supervisor.views["a"] = replace(view("a", "starting"), retry_at=moment, attempt=3)
    assert re.search(r"attempt 3 in (90|8\d) s$", run("ps").out.rstrip())


def test_readings_are_rounded(run: Run, served: Served) -> None:
    served.supervisor.power_watts = 71.23456
    assert re.split(r"  +", run("devices").out.splitlines()[1])[8] == "71 W"


def test_devices_tell_unknown_from_unsupported(run: Run) -> None:
    line = run("devices").out.splitlines()[1]
    assert re.split(r"  +", line)[:9] == [
        *("D0", "H200", "held", "140.0 GiB", "n/a", "16.0 GiB of 140.0 GiB", "3 %", "n/a"),
        "unsupported",
    ]
    documents = run("devices", "--json").out.splitlines()
    assert json.loads(documents[0])["accelerators"][0]["id"] == "D0"
    assert json.loads(documents[1])["leases"][0]["device"] == "D0"


def test_devices_say_who_is_on_them_and_around_what(run: Run) -> None:
    out = run("devices").out
    [held, lost] = out.splitlines()[1:3]
    assert "  a, b (16.0 GiB), c (unreadable), foreign: python 7, 1.0 GiB  " in held
    assert re.search(r"  \d+d, \d+d$", held), "since when, of each holder of ours"
    assert lost.split() == ["gone", "-", "lost", *["-"] * 8]
    assert "c, 2 CPUs; memory 4.0 GiB of 8.0 GiB used, swap n/a; linux 6\n" in out


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


def test_several_are_stopped_and_the_first_failure_is_the_exit_code(
    run: Run, served: Served
) -> None:
    for name in ("a", "b"):
        served.supervisor.views[name] = view(name)
    found = run("stop", "a", "nobody", "b")
    assert (found.code, found.out) == (4, "a stopped\nb stopped\n")
    assert "nobody" in found.err


def test_a_stop_of_what_had_ended_by_itself_says_so(run: Run, served: Served) -> None:
    failure = ExitedEarly(exit_code=9, signal=None, log_tail="")
    served.supervisor.views["a"] = replace(view("a", "exited"), failure=failure)
    assert run("stop", "a").out == "a had ended by itself: exited-early\n"


def test_all_about_one(run: Run, served: Served) -> None:
    diagnosis = Diagnosis(code="x", summary="no memory", hint="less of it", evidence="\x1b[2Joom")
    failure = ExitedEarly(exit_code=1, signal=None, log_tail="", diagnosis=diagnosis)
    served.supervisor.views["a"] = replace(
        view("a", "exited"), failure=failure, log_path="/l/1.log"
    )
    shown = dict(line.split(maxsplit=1) for line in run("info", "a").out.splitlines())
    assert (shown["name"], shown["devices"], shown["log"]) == ("a", "D0", "/l/1.log")
    assert shown["state"] == "exited (exited-early (x))"
    assert shown["failure"].endswith(
        "exited with code 1 before it was ready: no memory; less of it"
    )
    assert shown["evidence"] == "\\x1b[2Joom"
    assert json.loads(run("info", "a", "--json").out)["record"]["name"] == "a"
    assert run("info", "nobody").code == 4


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("launch", "a", "--model-pth", "x"), "did you mean --model-path?"),
        (("launch", "a", "-c", "4096"), "flags of the engine go behind `--`"),
        (("ps", "--al"), "did you mean --all?"),
    ],
)
def test_what_is_not_understood_is_put_right(run: Run, words: tuple[str, ...], said: str) -> None:
    found = run(*words)
    assert (found.code, found.out) == (2, "")
    assert said in found.err
    assert f"enginectl {words[0]} " in found.err, "the usage of that very command"


def test_times_in_milliseconds_take_a_unit_too(run: Run, served: Served) -> None:
    run(*LAUNCH, "--stall-ms", "90s", "--ready-cap-ms", "600000", "--ready-deadline-ms", "2m")
    launched = served.supervisor.launched[0]
    assert (launched.stall_ms, launched.ready_cap_ms) == (90_000, 600_000)
    assert launched.ready_deadline_ms == 120_000


def test_wait(run: Run, served: Served) -> None:
    served.supervisor.views["a"] = view("a")
    assert run("wait", "a") == Ran(0, "a ready 21000 D0\n", "")
    served.supervisor.slow["a"] = asyncio.Event()
    late = run("wait", "a", "--for", "exited", "--timeout", "10ms")
    assert late.code == 124
    assert "`enginectl wait a --for exited`" in late.err
    assert "`enginectl wait a`" in run("wait", "a", "--timeout", "10ms").err
    del served.supervisor.slow["a"]
    served.supervisor.views["a"] = view("a", "exited")
    assert run("wait", "a").code == 3


@pytest.mark.parametrize("command", ["wait", "restart"])
def test_who_waits_hears_of_the_attempts(run: Run, served: Served, command: str) -> None:
    served.supervisor.views["a"] = view("a")
    served.supervisor.slow["a"] = asyncio.Event()
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(run, command, "a")
        time.sleep(0.5)
        failed = LaunchFailed(
            instance="a",
            nonce="n",
            attempt=1,
            failure=SpawnFailed(detail="no such file"),
            log_path=None,
        )
        another = replace(failed, nonce="m", failure=AlreadyRunning(name="a"))
        again = Restarting(
            instance="a", nonce="n", attempt=2, retry_at="2020-01-01T00:00:00Z", reason="back-off"
        )
        served.publish(failed, another, again)
        time.sleep(0.5)
        served.release("a")
        assert "attempt 1 failed: spawn-failed, no such file; attempt 2 now" in waiting.result().err


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
    assert run("events", "--after", "1", "--kinds", "ready").out == shown[2] + "\n"
    assert run("events", "--after", "e:3").out == ""
    assert run("events", "-n", "1", "--kinds", "reserved").out == shown[0] + "\n"
    assert run("events", "-n", "2", "--kinds", "ready,reserved").out.splitlines() == shown[::2]
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
    told = run("config", "check", str(good), "--json")
    assert json.loads(told.out) == {"ok": True, "file": str(good)}
    told = run("config", "check", str(bad), "--json")
    assert (told.code, told.err, json.loads(told.out)["ok"]) == (1, "", False)
    assert "ports.first" in json.loads(told.out)["error"]


def test_config_check_looks_where_the_unit_does() -> None:
    unit = Path(__file__).parents[2] / "systemd" / "engined.service"
    assert f"--config {checking.DEFAULT_FILE}\n" in unit.read_text()


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
        ("events", "--after", "e:three"),
        ("logs", "a", "-n", "-1"),
        ("events", "-n", "-1"),
        ("events", "--kinds", "ready,nonsense"),
        (*LAUNCH, "--command"),
        (*LAUNCH, "--command", "--"),
        ("plan", "a", "--command", "--"),
    ],
)
def test_wrong_usage_is_2(run: Run, words: tuple[str, ...]) -> None:
    found = run(*words)
    assert found.code == 2
    assert found.err


def test_a_kind_that_there_is_not_is_named(run: Run) -> None:
    assert "no kind 'nonsense'; there are adopted," in run("events", "--kinds", "nonsense").err


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


def test_pin_holds_devices_for_somebody(run: Run, served: Served) -> None:
    words = ("pin", "p", "--engine", "vllm", "--device", "D0", "D1", "--device", "D2,D3")
    assert run(*words, "--holder", "speech") == Ran(0, "p holds D0,D1,D2,D3 for speech\n", "")
    pinned = served.supervisor.views["p"].record
    assert (pinned.ref, pinned.engine) == (PinnedHandle(holder="speech"), "vllm")
    assert "pinned for speech" in run("ps").out
    assert run(*words).code == 1
    assert run("release", "p").code == 0
    assert run("pin", "q", "--engine", "vllm").code == 2


def test_a_pin_is_for_whoever_types_it(
    run: Run, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USER", "ada")
    assert run("pin", "p", "--engine", "vllm", "--device", "D0").out == "p holds D0 for ada\n"


def test_metrics_of_an_engine(run: Run, served: Served) -> None:
    served.supervisor.views["a"] = view("a")
    assert run("metrics", "a") == Ran(
        0,
        "requests running  2\n"
        "requests waiting  0\n"
        "KV cache used     unsupported\n"
        "prompt tokens     n/a\n"
        "generated tokens  1000000000000000\n",
        "",
    )
    reply = json.loads(run("metrics", "a", "--json").out)
    assert reply["metrics"]["promptTokensTotal"] is None
    assert run("metrics", "b").code == 4


def test_metrics_of_the_supervisor_itself(run: Run) -> None:
    ran = run("metrics")
    assert ran.code == 0
    assert '\nengine_supervisor_instances{state="ready"} 0.0\n' in ran.out


def test_detect_shows_ours_and_others(run: Run) -> None:
    ran = run("detect")
    assert ran.code == 0
    head, ours, theirs = (line.split() for line in ran.out.splitlines())
    assert head == ["PID", "ENGINE", "INSTANCE", "PORT", "DEVICES", "USER", "MODEL"]
    assert ours == ["4711", "vllm", "a", "21000", "D0", "engines", "/models/m"]
    assert theirs == ["4712", "llamacpp", "-", "8080", "n/a", "n/a", "n/a"]
    assert ran.err == "enginectl: 3 processes of other users could not be looked at\n"


@pytest.mark.parametrize(
    "words",
    [
        ("stop", "a\udcff"),
        ("launch", "a", "--model-path", "/m\udcff"),
        ("plan", "a", "--recipe", "q", "--", "--x\udcff"),
        ("rpc", "instance.get", '{"name":"a\udcff"}'),
    ],
)
def test_what_is_not_utf_8_is_a_usage_error(run: Run, words: tuple[str, ...]) -> None:
    found = run(*words)
    assert (found.code, found.out) == (2, "")
    assert "is not UTF-8" in found.err
