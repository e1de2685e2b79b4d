"""How far the estimate of a launch's memory is from what a real llama-server takes.

Each sample is one load of the genuine server, on the CPU, with ``-v`` so that it logs its buffers.
The cache must agree with its log to the last digit. The whole is compared with the resident memory
of the loaded server; the error is in percent of that, above zero where more was estimated than
taken. Pages of the model that the loading never touched, and of buffers that no request used yet,
are not resident: an estimate that is a little above is the right one.
"""

import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.figure import Bound, Figure, Row, Skip, row
from bench.parts.daemon import port_pool
from bench.stage import Stage
from examples import get_engine
from supervisor.contracts.model import Fit, ModelFacts
from supervisor.engines.memory import serving_of
from supervisor.models.estimate import estimate
from supervisor.models.facts import model_facts

MIB = 1 << 20
SOON_S = 60.0
SERVINGS: tuple[tuple[str, ...], ...] = (
    (),
    ("-c", "1000", "-np", "3"),
    ("-c", "16384", "-np", "2", "-ctk", "q8_0", "-ctv", "q8_0"),
    ("-c", "2048"),
    ("-c", "8192", "-np", "1"),
    ("-c", "32768", "-np", "4"),
    ("-c", "16384", "-np", "2", "-ctk", "q4_0", "-ctv", "q4_0"),
    ("-c", "16384", "-ub", "128", "-ctk", "f32", "-ctv", "bf16"),
)
_CACHE = re.compile(r"llama_kv_cache: size = +([0-9.]+) MiB \( *([0-9]+) cells")
_BUFFER = re.compile(r"(?:compute|output) buffer size = +([0-9.]+) MiB")


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What one load of the server said and took."""

    cache_mib: float
    """As the log has it, to two digits."""
    buffers_mib: float
    resident_bytes: int


def load(server: Path, model: Path, words: Sequence[str]) -> Load:
    """Load a model, and end the server again. Raises ``Skip`` where it does not get there."""
    port, _ = port_pool()
    with tempfile.TemporaryFile() as log:
        argv = [str(server), "-m", str(model), "--port", str(port), "-v", *words]
        with subprocess.Popen(argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL) as process:
            try:
                text = _loaded(process, log.fileno())
                resident = _resident(process.pid)
            finally:
                process.send_signal(signal.SIGKILL)
    # It plans with an empty model first, and then says everything again: the end is what counts.
    text = text[text.rindex("loading model tensors") :]
    return Load(
        cache_mib=sum(float(found[1]) for found in _CACHE.finditer(text)),
        buffers_mib=sum(float(found[1]) for found in _BUFFER.finditer(text)),
        resident_bytes=resident,
    )


def estimated(model: Path, words: Sequence[str]) -> Fit:
    """Our estimate of the same."""
    return estimate("llamacpp", model_facts(str(model)), serving_of("llamacpp", words, {}), ())


def _loaded(process: "subprocess.Popen[bytes]", log: int) -> str:
    deadline = time.monotonic() + SOON_S
    while time.monotonic() < deadline and process.poll() is None:
        text = os.pread(log, 64 * MIB, 0).decode(errors="replace")
        if "listening on http" in text and "model loaded" in text:
            return text
        time.sleep(0.05)
    raise Skip("the llama-server did not load its model")


def _resident(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    kib = next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(kib) << 10


def measure(stage: Stage) -> Iterable[Row]:
    server, model = get_engine.genuine(), get_engine.model()
    if not get_engine.complete(server.parent) or not model.exists():
        raise Skip("needs python examples/get_engine.py --genuine")
    facts = model_facts(str(model))
    assert isinstance(facts, ModelFacts), facts
    wrong, buffers, errors, notes = [], [], [], []
    for words in SERVINGS[: stage.pick(tiny=1, quick=3, default=len(SERVINGS))]:
        fit, real = estimated(model, words), load(server, model, words)
        need = fit.need_bytes or 0
        wrong.append(abs(round((fit.kv_bytes or 0) / MIB, 2) - round(real.cache_mib, 2)))
        rest = (fit.overhead_bytes or 0) / MIB
        buffers.append(rest - real.buffers_mib)
        errors.append(100 * (need - real.resident_bytes) / real.resident_bytes)
        notes.append(
            f"{' '.join(words) or 'as it comes'}: cache {real.cache_mib:.2f} MiB, "
            f"resident {real.resident_bytes / MIB:.0f}, estimated {need / MIB:.0f}"
        )
    yield row(
        "cache of keys and values: MiB beside the server's log",
        "",
        wrong,
        Bound(stat="most", limit=0.011),
    )
    yield row(
        "the whole, beside the loaded server's resident memory: error",
        "%",
        [abs(error) for error in errors],
        Bound(stat="most", limit=10),
        notes=notes,
    )


FIGURE = Figure(name="fit", title="The estimate of memory", measure=measure)
