"""The engine of these tests: the stub, which also bears witness to what happens to it.

It writes a line for its start, for each of its forks, for a TERM and for its own exit; and it takes
an exclusive lock on one file per device that it was given. The lock belongs to the open file that
its whole tree shares: whoever finds it taken stands on a device under another living tree.
"""

import fcntl
import json
import os
import time
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from tests.parts.stub_engine import Stub, read
else:
    from stub_engine import Stub, read  # on the path that the wrapper sets


class Witness(Stub):
    """Knobs beside the stub's own: ``book`` (a file) and ``locks`` (a folder)."""

    def run(self) -> None:
        env = os.environ
        self.nonce = env["ENGINE_SUPERVISOR_NONCE"]
        self.name = env["ENGINE_SUPERVISOR_INSTANCE"]
        self.devices = env["ENGINE_SUPERVISOR_DEVICES"].split(",")
        self.book = os.open(self["book"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.register_at_fork(after_in_child=lambda: self.note("child"))
        self.note("start")
        end = os._exit

        def exit_by_itself(status: int) -> NoReturn:
            if not self.terms:
                self.note("exit")
            end(status)

        os._exit = exit_by_itself
        for device in self.devices:
            lock = os.open(f"{self['locks']}/{device}", os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.note("clash", device)
            else:
                os.ftruncate(lock, 0)
                os.pwrite(lock, f"{self.name} {self.nonce} {os.getpid()}".encode(), 0)
        super().run()

    def on_term(self, *_: object) -> None:
        self.note("term")
        super().on_term()

    def note(self, what: str, device: str = "") -> None:
        line = {
            "what": what,
            "at": time.monotonic_ns(),
            "name": self.name,
            "nonce": self.nonce,
            "pid": os.getpid(),
            "start": int(read("/proc/self/stat").rpartition(")")[2].split()[19]),
            "devices": self.devices,
            "device": device,
        }
        os.write(self.book, json.dumps(line).encode() + b"\n")
