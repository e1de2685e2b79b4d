"""The disposable probe process: whatever may hang in a driver is called here and nowhere else.

It speaks lines of JSON over its standard streams: ``{"ask": ["nvidia"]}`` in, ``{"probe": ...,
"answer": ...}`` out, one for each as it comes. Each vendor has a thread of its own, so that one
that hangs does not keep back the others. It holds nothing of the daemon's, and leaves when its
input ends or when nobody has asked for a while.
"""

import os
import select
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import NoReturn

import msgspec

from supervisor.devices.amd import AmdProbe
from supervisor.devices.intel import IntelProbe
from supervisor.devices.nvml import NvmlProbe
from supervisor.devices.probe import Probe, ProbeAnswer, Question, Reply
from supervisor.devices.roots import HOST, Roots
from supervisor.devices.sensors import SensorProbe

IDLE_S = 60.0
VENDORS: Mapping[str, Callable[[Roots], Probe]] = {
    "nvidia": NvmlProbe,
    "amd": AmdProbe,
    "intel": IntelProbe,
    "sensors": SensorProbe,
}
"""What can be asked for."""


class _Worker(threading.Thread):
    """One vendor's probe, which answers once for each time it is asked."""

    def __init__(self, vendor: str, roots: Roots, answers: "_Answers") -> None:
        super().__init__(name=vendor, daemon=True)
        self._answers = answers
        self._probe = VENDORS[vendor](roots)
        self.asked: SimpleQueue[None] = SimpleQueue()

    def run(self) -> None:
        while True:
            self.asked.get()
            try:
                answer = self._probe.sample()
            except Exception as error:  # a vendor's library may raise anything
                answer = ProbeAnswer(state="failed", reason=f"{type(error).__name__}: {error}")
            reply = Reply(probe=self.name, answer=answer)
            self._answers.write(msgspec.json.encode(reply) + b"\n")


class _Answers:
    """The way back. What a vendor's library prints goes elsewhere."""

    def __init__(self) -> None:
        self._fd = os.dup(1)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)
        self._turn = threading.Lock()

    def write(self, line: bytes) -> None:
        with self._turn:
            left = memoryview(line)
            while left:
                left = left[os.write(self._fd, left) :]


def main(arguments: Sequence[str] = ()) -> NoReturn:
    """Answer until the other side closes its end. The argument is a made-up host's folder."""
    roots = Roots.under(Path(arguments[0])) if arguments else HOST
    workers: dict[str, _Worker] = {}
    answers = _Answers()
    pending = b""
    while select.select([0], [], [], IDLE_S)[0]:
        chunk = os.read(0, 65_536)
        if not chunk:
            break
        *lines, pending = (pending + chunk).split(b"\n")
        for line in lines:
            for vendor in msgspec.json.decode(line, type=Question).ask:
                if vendor not in workers:
                    workers[vendor] = _Worker(vendor, roots, answers)
                    workers[vendor].start()
                workers[vendor].asked.put(None)
    # Not by `sys.exit`: a thread that hangs would be waited for.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
