"""This machine's own GPUs, where it has any: the probe against what NVIDIA's own tool says."""

import csv
import os
import shutil
import subprocess

import pytest

from supervisor.devices.prober import Prober
from supervisor.devices.roots import HOST
from supervisor.devices.traces import vendors_here

QUERY = ("uuid", "name", "memory.total", "driver_version")

pytestmark = pytest.mark.skipif(
    shutil.which("nvidia-smi") is None or "nvidia" not in vendors_here(HOST, os.environ),
    reason="no NVIDIA driver: this runs on a machine with one of its GPUs",
)


def test_the_probe_and_nvidia_smi_agree() -> None:
    told = subprocess.run(
        ["nvidia-smi", f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader,nounits"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    expected = [tuple(map(str.strip, row)) for row in csv.reader(told.stdout.splitlines())]
    prober = Prober()
    held = prober.ask(["nvidia"])["nvidia"]
    prober.close()
    assert held.state == "ok"
    wholes = [it for it in held.answer.accelerators if not (it.access and it.access.parent)]
    assert [
        (it.id, it.name, str((it.memory_total_bytes or 0) >> 20), it.driver) for it in wholes
    ] == expected
    for device in wholes:
        assert device.processes is not None
        assert device.temperature_c
