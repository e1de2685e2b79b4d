"""One engine's life under supervision, as a person would type it: launch, ask, stop.

    make demo

A real llama.cpp server with a real small model runs on this machine's processor; nothing of it
outlives the demo, however that ends. Run it with the Python that engine-supervisor is installed in.
"""

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import NoReturn

HERE = Path(__file__).resolve().parent
SYSTEM = "You are a helpful assistant."  # without one, a model this small babbles
QUESTION = "What is the capital of France?"
ANSWER = "Paris"
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class DemoFailedError(Exception):
    """Something did not go as the demo shows it."""


def main() -> int:
    for stop in STOPS:
        signal.signal(stop, _leave)  # an exception, so that every `with` below still tidies
    os.environ["PATH"] = f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"
    try:
        if shutil.which("engined") is None:
            raise DemoFailedError("this Python has no engine-supervisor; `make demo` sets it up")
        engine = get_engine()
        with workplace() as config, daemon(config):
            tour(engine)
    except DemoFailedError as failure:
        print(f"\ndemo failed: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print("\nThe engine is gone, its device is free, and the daemon left nothing behind.")
    return 0


def tour(engine: dict[str, str]) -> None:
    """The demo itself."""
    shell("enginectl devices")
    with background("enginectl events -f --after 0"):
        launched = shell(
            f"enginectl launch smol --engine llamacpp --model-path {shlex.quote(engine['model'])}"
            f" --binary {shlex.quote(engine['server'])} -- -c 2048"
        )
        shell("enginectl ps")
        ask(port_of(launched))
        shell("enginectl stop smol")
        time.sleep(0.2)  # lets the last events reach the screen
    shell("enginectl ps -a")
    shell("enginectl devices")


def get_engine() -> dict[str, str]:
    """The paths of a llama-server and of a model, downloaded on the first run."""
    command = [sys.executable, str(HERE / "get_engine.py")]
    show("python examples/get_engine.py")
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise DemoFailedError("there is no engine to run; the lines above say why")
    print(done.stdout, end="")
    paths: dict[str, str] = json.loads(done.stdout)
    return paths


@contextlib.contextmanager
def workplace() -> Iterator[Path]:
    """A folder for socket, records and logs, with a configuration that names them."""
    # The name stays short: a Unix socket's path may have 107 bytes.
    with tempfile.TemporaryDirectory(prefix="engined-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        places = {"socket": "engined.sock", "state-dir": "state", "log-dir": "log"}
        lines = [f"{key} = {json.dumps(str(folder / place))}" for key, place in places.items()]
        config = folder / "config.toml"
        config.write_text("\n".join(lines) + "\n")
        for key, place in places.items():
            # The variables would win over the file, should the caller's shell have them.
            os.environ[f"ENGINE_SUPERVISOR_{key.replace('-', '_').upper()}"] = str(folder / place)
        show(f"cat {config}")
        print(config.read_text(), end="")
        yield config


@contextlib.contextmanager
def daemon(config: Path) -> Iterator[None]:
    """`engined` in the background, from a socket that answers to a clean end, engines stopped."""
    show(f"engined --config {config} &")
    log = config.with_name("engined.log")
    with log.open("wb") as output:
        engined = subprocess.Popen(
            ["engined", "--config", str(config)], stdout=output, stderr=subprocess.STDOUT
        )
    try:
        wait_for_socket(engined, log)
        yield
    finally:
        for stop in STOPS:
            signal.signal(stop, signal.SIG_IGN)  # nothing cuts the tidying short
        # A daemon leaves its engines running when it ends, so on a failed run they go first.
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(["enginectl", "drain"], capture_output=True, check=False, timeout=60)
        show(f"kill {engined.pid}")
        end(engined, seconds=30)
        end_engines(config.with_name("state"))
    if engined.returncode:
        raise DemoFailedError(f"engined exited {engined.returncode}:\n{log.read_text()}")


def end_engines(state: Path) -> None:
    """Kill what a daemon that crashed left running, by its records."""
    for record in state.rglob("*.json"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            pid = int(json.loads(record.read_text())["ref"]["pid"])
            if b"llama-server" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)


def wait_for_socket(engined: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + 30
    while subprocess.run(["enginectl", "ps"], capture_output=True, check=False).returncode:
        if engined.poll() is not None or time.monotonic() > deadline:
            raise DemoFailedError(f"engined does not answer:\n{log.read_text()}")
        time.sleep(0.1)


@contextlib.contextmanager
def background(command: str) -> Iterator[None]:
    """A command whose lines come in between those of the others, marked as its own."""
    show(f"{command} &")
    process = subprocess.Popen(shlex.split(command), stdout=subprocess.PIPE, text=True)
    reader = threading.Thread(target=_echo, args=(process,), daemon=True)
    reader.start()
    try:
        yield
    finally:
        end(process, seconds=5)
        reader.join(timeout=5)


def _echo(process: "subprocess.Popen[str]") -> None:
    assert process.stdout
    width = shutil.get_terminal_size((110, 24)).columns - 4
    for line in process.stdout:
        print(f"  ~ {line.rstrip()[:width]}", flush=True)


def ask(port: int) -> None:
    """One question over the engine's own API, which speaks OpenAI's."""
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}]
    body = json.dumps({"messages": messages, "temperature": 0})
    show(f"curl {url} -d {shlex.quote(body)}")
    request = urllib.request.Request(url, body.encode(), {"Content-Type": "application/json"})
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(request, timeout=120) as reply:
        answer: str = json.load(reply)["choices"][0]["message"]["content"]
    print(answer)
    if ANSWER not in answer:
        raise DemoFailedError(f"the answer was to name {ANSWER}")


def port_of(launched: str) -> int:
    """The port in `NAME ready PORT DEVICES`, which is what a launch prints."""
    match launched.split():
        case [_, "ready", port, *_] if port.isdigit():
            return int(port)
    raise DemoFailedError(f"the launch names no port: {launched!r}")


def shell(command: str) -> str:
    """Run a command to its end, showing it and what it prints."""
    show(command)
    done = subprocess.run(shlex.split(command), stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout, end="", flush=True)
    if done.returncode:
        raise DemoFailedError(f"`{command}` exited {done.returncode}")
    return done.stdout


def show(command: str) -> None:
    print(f"\n$ {command}", flush=True)


def end(process: "subprocess.Popen[bytes] | subprocess.Popen[str]", seconds: float) -> None:
    """Ask a process to leave, and make it leave if it will not."""
    process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _leave(signum: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
