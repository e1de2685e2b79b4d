"""A daemon of the bench's own: its socket, records, logs and ports are nobody else's."""

import itertools
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from msgspec import UNSET

from bench.parts.engine import EngineProgram
from bench.parts.product import PRODUCT, product_environment
from supervisor.client import Client, DaemonUnreachable
from supervisor.contracts.instance import InstanceView, LaunchParams, ProcessHandle
from supervisor.contracts.paths import PREFIX
from supervisor.contracts.rpc import DrainParams

START = "import sys; from supervisor.daemon import main; sys.exit(main())"
READY_S = 15.0
PORTS_EACH = 400
_pools = itertools.cycle(range(23_000, 31_000, PORTS_EACH))


def port_pool() -> tuple[int, int]:
    """First and last port; two daemons on one pool would meet on ports that neither has bound."""
    first = next(_pools)
    return first, first + PORTS_EACH - 1


def launch_params(
    engine: EngineProgram,
    name: str,
    flags: tuple[str, ...],
    *,
    wait: bool,
    port: int = 0,
    device: str | None = None,
    deadline_ms: int = 0,
) -> LaunchParams:
    return LaunchParams(
        name=name,
        engine="llamacpp",
        model_path=engine.model,
        binary=engine.path,
        extra_args=flags,
        port=port or UNSET,
        devices=(device,) if device else UNSET,
        ready_deadline_ms=deadline_ms or UNSET,
        wait=wait,
    )


class Daemon:
    """``engined`` in a process of its own. It can be killed and begun again on the same records."""

    def __init__(
        self,
        folder: Path,
        engine: EngineProgram,
        *,
        cgroups: Literal["auto", "off"] = "auto",
        devices: int = 0,
        more: str = "",
    ) -> None:
        """With ``devices``, so many engines get one each, to themselves. ``more`` is config."""
        self.folder = folder
        self.engine = engine
        self.socket = str(folder / "s")
        first, last = port_pool()
        self.devices = tuple(f"card:{number}" for number in range(devices))
        self._config = folder / "engined.toml"
        self._config.write_text(
            f'socket = "{self.socket}"\nstate-dir = "{folder}/state"\nlog-dir = "{folder}/log"\n'
            f'log-level = "warning"\ncgroups = "{cgroups}"\n'
            f"[ports]\nfirst = {first}\nlast = {last}\n"
            + "".join(
                f'[[devices.static]]\nid = "{card}"\naccelerator = "cuda"\n'
                for card in self.devices
            )
            + more
        )
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, "it was not started"
        return self._process.pid

    @property
    def events(self) -> Path:
        """The journal's file."""
        return self.folder / "log" / "events.jsonl"

    def begin(self) -> None:
        """Start the program, and do not wait for it."""
        known = product_environment()
        env = {key: value for key, value in known.items() if not key.startswith(PREFIX)}
        with (self.folder / "engined.log").open("ab") as log:
            self._process = subprocess.Popen(
                [PRODUCT.python, "-c", START, "--config", str(self._config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=env,
            )

    def start(self) -> None:
        """Return once it answers, and so has taken up every record."""
        self.begin()
        deadline = time.monotonic() + READY_S
        while True:
            try:
                with self.client() as client:
                    client.info()
                return
            except DaemonUnreachable:
                if self.ended() or time.monotonic() > deadline:
                    said = (self.folder / "engined.log").read_text(errors="replace")
                    raise RuntimeError(f"engined did not start: {said[-2000:]}") from None
                time.sleep(0.01)

    def ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def kill(self) -> None:
        """As if it had crashed; its engines run on."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def close(self) -> None:
        """End the engines, then the daemon. What that leaves, the stage's sweep finds."""
        if self._process is None:
            return
        if self._process.poll() is None:
            with self.client() as client:
                client.drain(DrainParams(grace_ms=1_000))
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def client(self) -> Client:
        return Client(self.socket)

    def fill(self, count: int, *flags: str, prefix: str = "e") -> dict[str, int]:
        """Launch so many engines, wait until all are ready, and give their pids by name."""
        with self.client() as client:
            for number in range(count):
                name, every = f"{prefix}{number}", (*self.engine.flags(), *flags)
                device = self.devices[number] if self.devices else None
                client.launch(launch_params(self.engine, name, every, wait=False, device=device))
            for number in range(count):
                client.wait(f"{prefix}{number}", "ready", timeout_ms=60_000)
            return {view.record.name: pid_of(view) for view in client.list().instances}


def pid_of(view: InstanceView) -> int:
    ref = view.record.ref
    assert isinstance(ref, ProcessHandle), f"{view.record.name} has no process"
    return ref.pid


@contextmanager
def daemon(
    folder: Path,
    engine: EngineProgram,
    *,
    cgroups: Literal["auto", "off"] = "auto",
    devices: int = 0,
    more: str = "",
) -> Iterator[Daemon]:
    """A running one."""
    one = Daemon(folder, engine, cgroups=cgroups, devices=devices, more=more)
    try:
        one.start()
        yield one
    finally:
        one.close()
