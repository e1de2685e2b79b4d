"""One state directory, the daemons that follow one another on it, and what can be seen of both."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from supervisor.client import Client, ClientError
from supervisor.contracts.instance import InstanceRecord, LaunchParams, ProcessHandle, Tombstone
from tests.chaos.book import Book, Entry, bearers, kill, lives
from tests.chaos.daemon import Orders
from tests.chaos.nursery import Daemon, Nursery
from tests.lifecycle.house import POOL
from tests.parts.cgroups import sweep
from tests.parts.stub import STUB_ENGINE, interpreter

CARDS = tuple(f"GPU-{number:08x}-0000-4000-8000-000000000000" for number in range(64))
SOON = 20.0
"""Far beyond anything that happens here, and short enough to wait for."""

RESTART = {
    "initial-ms": 40,
    "max-ms": 300,
    "jitter": 0.5,
    "stable-ms": 1_500,
    "max-attempts": 6,
    "breaker-failures": 4,
    "breaker-ms": 500,
}


@dataclass
class World:
    """Everything in one folder. Daemons come and go; the engines stay."""

    folder: Path
    nursery: Nursery
    cards: Sequence[str]
    restart: dict[str, float] = field(default_factory=lambda: RESTART)
    daemon: Daemon | None = None

    def __post_init__(self) -> None:
        for name in ("locks", "bin"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "model.gguf").touch()
        self.state_dir, self.log_dir = self.folder / "state", self.folder / "log"
        self.socket = f"{self.folder}/s"
        self.book = Book(self.folder / "book")
        self._names = count()
        self.config = self.folder / "config.toml"
        table = "".join(f"{key} = {value}\n" for key, value in self.restart.items())
        devices = "".join(
            f'[[devices.static]]\nid = "{card}"\naccelerator = "cuda"\nmemory-bytes = 1000\n'
            for card in self.cards
        )
        self.config.write_text(
            f'socket = "{self.socket}"\nstate-dir = "{self.state_dir}"\n'
            f'log-dir = "{self.log_dir}"\nlog-level = "error"\ntombstones = 40\n'
            f"[ports]\nfirst = {POOL.first}\nlast = {POOL.last}\n[restart]\n{table}{devices}"
        )

    # Daemons

    def begin(
        self,
        *,
        die_at: int | None = None,
        trace: Path | None = None,
        passing: frozenset[str] = frozenset(),
    ) -> Daemon:
        """Start the next daemon. It need not come to serve."""
        assert self.daemon is None, "one at a time"
        self.daemon = self.nursery.start(
            Orders(
                config=str(self.config),
                stderr=str(self.folder / "stderr"),
                trace=None if trace is None else str(trace),
                die_at=die_at,
                passing=passing,
            )
        )
        return self.daemon

    def serving(self) -> bool:
        """Wait until the daemon answers; false if it died before."""
        assert self.daemon
        deadline = time.monotonic() + SOON
        while time.monotonic() < deadline:
            try:
                with self.client() as client:
                    client.info()
                return True
            except ClientError:
                if self.daemon.is_dead():
                    return False
                time.sleep(0.003)
        raise AssertionError(f"no daemon after {SOON} s: {self.stderr()}")

    def start(self) -> Daemon:
        """A daemon that serves, and dies at no step."""
        daemon = self.begin()
        assert self.serving(), self.stderr()
        return daemon

    def gone(self) -> int:
        """Wait for the daemon's end, whatever ended it."""
        assert self.daemon
        status = self.daemon.wait()
        self.daemon = None
        return status

    def kill(self) -> None:
        assert self.daemon
        self.daemon.kill()
        self.gone()

    def client(self) -> Client:
        return Client(self.socket)

    def stderr(self) -> str:
        path = self.folder / "stderr"
        return path.read_text()[-4_000:] if path.exists() else ""

    # Engines

    def binary(self, **knobs: str | float) -> str:
        """A ``llama-server`` that bears witness."""
        presets = {knob.replace("_", "-"): str(value) for knob, value in knobs.items()}
        presets |= {"book": str(self.book.path), "locks": str(self.folder / "locks")}
        path = self.folder / "bin" / f"llama-server-{next(self._names)}"
        modules = [str(STUB_ENGINE.parent), str(Path(__file__).parent)]
        path.write_text(
            f"#!{interpreter()} -S\nimport os, sys\nsys.path[:0] = {modules!r}\n"
            "from engine import Witness\ndel sys.path[:2]\n"
            f"Witness(sys.argv[1:], os.environ, {presets!r}).run()\n"
        )
        path.chmod(0o755)
        return str(path)

    def params(self, name: str, **members: Any) -> LaunchParams:
        if "binary" not in members:
            members["binary"] = self.binary()
        usual = {"engine": "llamacpp", "model_path": str(self.folder / "model.gguf")}
        return LaunchParams(name=name, **usual | members)

    def kill_engine(self, main: Entry) -> None:
        """With its whole tree, as the kernel's out-of-memory killer may do it to a cgroup."""
        for entry in self.book.living():
            if entry.nonce == main.nonce:
                kill(entry)

    # What lies on the disk, read when no daemon runs or as one left it

    def records(self) -> dict[str, InstanceRecord]:
        """Raises what makes a record unreadable."""
        found = {}
        for path in sorted((self.state_dir / "instances").glob("*.json")):
            with suppress(FileNotFoundError):  # it ended meanwhile
                record = msgspec.json.decode(path.read_bytes(), type=InstanceRecord)
                assert path.stem == record.name
                found[record.name] = record
        return found

    def tombstones(self) -> dict[str, Tombstone]:
        paths = sorted((self.state_dir / "tombstones").glob("*.json"))
        return {it.stem: msgspec.json.decode(it.read_bytes(), type=Tombstone) for it in paths}

    def temporary(self) -> list[Path]:
        return [*self.state_dir.rglob("*.tmp")]

    def quarantined(self) -> list[Path]:
        return [*(self.state_dir / "quarantine").glob("*")]

    def at_rest(self) -> list[str]:
        """What is wrong between the records and the engines; empty where all is well.

        To be asked while nothing is going on but what ends by itself.
        """
        records, wrong = self.records(), []
        wrong += [f"{path} is there" for path in [*self.temporary(), *self.quarantined()]]
        held: dict[str, str] = {}
        for record in records.values():
            for card in record.devices:
                if card in held:
                    wrong.append(f"{card} is leased to {held[card]} and {record.name}")
                held[card] = record.name
            if isinstance(record.ref, ProcessHandle):
                start = int((record.ref.start_token or ":0").rpartition(":")[2])
                if not lives(record.ref.pid, start):
                    wrong.append(f"{record.name} has a record and no engine")
        nonces = {record.nonce for record in records.values()}
        wrong += [
            f"{it.name} ({it.pid}, a {it.what}) lives without a record"
            for it in self.book.living()
            if it.nonce not in nonces
        ]
        return wrong

    def settle(self, seconds: float = SOON) -> list[str]:
        """What is wrong, and stays so however long one waits."""
        deadline = time.monotonic() + seconds
        while (wrong := self.at_rest()) and time.monotonic() < deadline:
            time.sleep(0.02)
        return wrong

    def clear(self) -> None:
        """End the daemon and every process of the book. For the end of a test."""
        if self.daemon is not None:
            self.kill()
        self.book.kill_living()
        nonces = {it.nonce for it in self.book.entries}
        deadline = time.monotonic() + SOON
        while (left := bearers(nonces)) and time.monotonic() < deadline:
            time.sleep(0.01)
        sweep(self.state_dir)
        assert left == []


@contextmanager
def world(folder: Path, nursery: Nursery, cards: int = 2, **restart: float) -> Iterator[World]:
    """A world of its own, which leaves nothing behind."""
    made = World(folder, nursery, CARDS[:cards], RESTART | restart)
    try:
        yield made
    finally:
        made.clear()
