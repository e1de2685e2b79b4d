"""A disk with no room for an archive: nothing is lost, nothing is left, and later it works."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import os, sys
from pathlib import Path
from supervisor.contracts.config import LogsConfig
from supervisor.logs.reading import read_from
from supervisor.logs.rotation import rotate
from tests.logs.writers import files_of, numbered, numbers

folder = Path(sys.argv[1])
log, limits = folder / "x.log", LogsConfig(max_bytes=128 * 1024, archives=9)

def fill(leave):
    free = os.statvfs(folder)
    with open(folder / "ballast", "wb") as ballast:
        ballast.write(b"b" * max(0, free.f_bavail * free.f_frsize - leave))

numbered(log, 0, 4000)
rotate(str(log), limits)
numbered(log, 4000, 8000)
before = numbers(files_of(log))
fill(leave=100_000)
found = rotate(str(log), limits)
assert found.trouble and not found.may_have_lost and not found.archived, found
assert numbers(files_of(log)) == before == list(range(8000))

# What the check of free space did not foresee.
import supervisor.logs.rotation as module
module._SPARE_BYTES = -(1 << 30)
found = rotate(str(log), limits)
assert found.trouble, found
assert set(os.listdir(folder)) - {"lost+found"} == {"ballast", "x.log", "x.log.1"}
assert numbers(files_of(log)) == list(range(8000))

os.unlink(folder / "ballast")
found = rotate(str(log), limits)
assert found.archived and not found.trouble, found
assert numbers(files_of(log)) == list(range(8000))
print("fine")
"""


@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
def test_a_full_disk_costs_no_line(tmp_path: Path, kind: str) -> None:
    if os.geteuid() != 0 or not shutil.which("unshare"):
        pytest.skip("needs root, for a mount namespace of its own")
    place = tmp_path / "disk"
    place.mkdir()
    if kind == "tmpfs":
        mount = f"mount -t tmpfs -o size=4m none {place}"
    elif not shutil.which("mkfs.ext4"):
        pytest.skip("there is no mkfs.ext4")
    else:
        image = tmp_path / "image"
        with open(image, "wb") as file:
            file.truncate(8 << 20)
        mount = f"mkfs.ext4 -q -O ^has_journal -m 0 {image} && mount -o loop {image} {place}"
    script = f'{mount} || exit 77; exec "$0" -c "$1" {place}'
    done = subprocess.run(
        [
            "unshare",
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-c",
            script,
            sys.executable,
            SCRIPT,
        ],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"PYTHONPATH": os.getcwd()},
        check=False,
    )
    if done.returncode == 77:
        pytest.skip(f"cannot mount {kind}: {done.stderr.strip()}")
    assert done.stdout == "fine\n", done.stderr
