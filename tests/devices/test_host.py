"""The machine: what control groups leave of it, and the file systems that are never waited for."""

import os
from pathlib import Path

import pytest

from supervisor.devices.host import host_memory, sample_host
from supervisor.devices.limits import cpu_limit, memory_limit
from supervisor.devices.volumes import mount_of, read_mounts, sample_volumes
from tests.devices.trees import Tree, roots

GIB = 1 << 30

MEMINFO: Tree = {
    "proc/meminfo": "\n".join(
        (
            f"MemTotal:       {128 * 1024**2} kB",
            f"MemFree:        {50 * 1024**2} kB",
            f"MemAvailable:   {100 * 1024**2} kB",
            "SwapTotal:             0 kB",
            "HugePages_Total:       0",
        )
    )
}
IN_V2: Tree = {
    "proc/self/cgroup": "0::/system.slice/engined.service/daemon",
    "sys/fs/cgroup/system.slice/engined.service/daemon/memory.max": "max",
    "sys/fs/cgroup/system.slice/engined.service/memory.max": str(16 * GIB),
    "sys/fs/cgroup/system.slice/engined.service/memory.current": str(5 * GIB),
    "sys/fs/cgroup/system.slice/engined.service/memory.stat": f"anon 1\ninactive_file {GIB}",
    "sys/fs/cgroup/system.slice/engined.service/cpu.max": "150000 100000",
    "sys/fs/cgroup/system.slice/memory.max": str(64 * GIB),
}
IN_V1: Tree = {
    "proc/self/cgroup": "9:name=systemd:/\n4:memory:/jobs/7\n3:cpu,cpuacct:/jobs/7\n0::/",
    "sys/fs/cgroup/memory/jobs/7/memory.limit_in_bytes": str(8 * GIB),
    "sys/fs/cgroup/memory/jobs/7/memory.usage_in_bytes": str(3 * GIB),
    "sys/fs/cgroup/memory/jobs/7/memory.stat": f"cache 1\ntotal_inactive_file {2 * GIB}",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
    "sys/fs/cgroup/cpu,cpuacct/jobs/7/cpu.cfs_quota_us": "50000",
    "sys/fs/cgroup/cpu,cpuacct/jobs/7/cpu.cfs_period_us": "100000",
    "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1",
}


def test_memory_without_limits(tmp_path: Path) -> None:
    memory = host_memory(roots(tmp_path, MEMINFO))
    assert memory == (128 * GIB, 100 * GIB, 0)


def test_memory_under_a_limit_of_version_2(tmp_path: Path) -> None:
    """That of the unit binds, though our own group in it has none; cached files are given back."""
    host = roots(tmp_path, {**MEMINFO, **IN_V2})
    assert memory_limit(host) == (16 * GIB, 4 * GIB)
    assert host_memory(host) == (16 * GIB, 12 * GIB, 0)
    assert cpu_limit(host) == 1.5


def test_memory_under_a_limit_of_version_1(tmp_path: Path) -> None:
    host = roots(tmp_path, {**MEMINFO, **IN_V1})
    assert host_memory(host) == (8 * GIB, 7 * GIB, 0)
    assert cpu_limit(host) == 0.5
    assert sample_host("p", host_memory(host), host).cpu_count == 1


def test_memory_in_a_container_that_sees_only_its_own_root(tmp_path: Path) -> None:
    inside: Tree = {
        "proc/self/cgroup": "0::/../../docker/abc",
        "sys/fs/cgroup/memory.max": str(4 * GIB),
        "sys/fs/cgroup/memory.current": str(GIB),
    }
    assert host_memory(roots(tmp_path, {**MEMINFO, **inside})) == (4 * GIB, 3 * GIB, 0)


def test_a_gpus_own_memory_is_not_the_hosts_too(tmp_path: Path) -> None:
    """TEL-1, Grace Hopper: the kernel counts the GPU's memory as a NUMA node of the host."""
    node: Tree = {
        "sys/devices/system/node/node1/meminfo": "\n".join(
            (f"Node 1 MemTotal:  {96 * 1024**2} kB", f"Node 1 MemFree:  {80 * 1024**2} kB")
        )
    }
    assert host_memory(roots(tmp_path, {**MEMINFO, **node}), {1}) == (32 * GIB, 20 * GIB, 0)


def test_this_hosts_own_memory() -> None:
    memory = host_memory()
    assert 0 < memory.available <= memory.total
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert memory.total <= pages


MOUNTS: Tree = {
    "proc/self/mountinfo": "\n".join(
        (
            "21 1 259:2 / / rw,relatime - ext4 /dev/nvme0n1p2 rw",
            "22 21 0:40 / {base}/models rw shared:1 - nfs4 server:/models rw,vers=4.2",
            "23 21 253:0 / {base}/data\\040disk rw - xfs /dev/mapper/vg-data rw",
            "24 21 0:50 / {base}/pool rw - btrfs /dev/sda1 rw",
            "25 21 0:60 / {base}/hub rw - fuse.rclone hub: rw",
        )
    ),
    "sys/devices/pci0/nvme0n1/nvme0n1p2/partition": "2",
    "sys/devices/pci0/nvme0n1/queue/rotational": "0",
    "sys/devices/pci0/nvme0n1/device/model": "Samsung SSD 990 PRO   ",
    "sys/dev/block/259:2": "-> sys/devices/pci0/nvme0n1/nvme0n1p2",
    "sys/devices/virtual/dm-0/queue/rotational": "1",
    "sys/dev/block/253:0": "-> sys/devices/virtual/dm-0",
    "sys/devices/virtual/dm-0/slaves/sdb": "-> sys/devices/pci0/sdb",
    "sys/devices/virtual/dm-0/slaves/sdc": "-> sys/devices/pci0/sdc",
    "sys/devices/pci0/sdb/queue/rotational": "1",
    "sys/devices/pci0/sdb/device/model": "ST4000",
    "sys/devices/pci0/sdc/queue/rotational": "0",
    "sys/devices/pci0/sdc/device/model": "!",
    "sys/devices/pci0/sda/sda1/partition": "1",
    "sys/devices/pci0/sda/queue/rotational": "1",
    "sys/class/block/sda1": "-> sys/devices/pci0/sda/sda1",
}


@pytest.fixture
def mounted(tmp_path: Path) -> Path:
    """Folders that a made-up table of mounts speaks of."""
    table = MOUNTS["proc/self/mountinfo"].replace("{base}", str(tmp_path))
    roots(tmp_path, {**MOUNTS, "proc/self/mountinfo": table})
    for name in ("data disk", "pool"):
        (tmp_path / name).mkdir()
    return tmp_path


def test_volumes_with_their_drives(mounted: Path) -> None:
    host = roots(mounted)
    root, data, pool = sample_volumes(("/x", f"{mounted}/data disk/a", f"{mounted}/pool"), host)
    assert (root.mount, root.filesystem) == ("/", "ext4")
    assert (root.model, root.rotational) == ("Samsung SSD 990 PRO", False)
    assert root.total_bytes
    assert (data.mount, data.filesystem) == (f"{mounted}/data disk", "xfs")
    assert (data.model, data.rotational) == ("ST4000", True)
    assert (pool.filesystem, pool.rotational) == ("btrfs", True)


@pytest.mark.parametrize(("name", "kind"), [("models", "nfs4"), ("hub", "fuse.rclone")])
def test_a_network_mount_is_never_touched(mounted: Path, name: str, kind: str) -> None:
    """Its folder is not even there here: whoever looked would find nothing."""
    host = roots(mounted)
    (mounted / "link").symlink_to(mounted / name / "llama")
    for path in (f"{mounted}/{name}/llama/7b", f"{mounted}/link/7b"):
        [volume] = sample_volumes([path], host)
        assert (volume.mount, volume.filesystem) == (f"{mounted}/{name}", kind)
        assert (volume.total_bytes, volume.free_bytes) == (None, None)
        assert (volume.model, volume.rotational) == (None, None)


def test_links_are_followed_and_end(mounted: Path) -> None:
    mounts = read_mounts(roots(mounted))
    (mounted / "down").symlink_to("pool/../data disk")
    (mounted / "round").symlink_to("round")
    for path, at in (
        (f"{mounted}/down/x", f"{mounted}/data disk"),
        (f"{mounted}/round/x", "/"),
        (f"{mounted}/pool/../x", "/"),
    ):
        mount = mount_of(path, mounts)
        assert mount is not None
        assert mount.at == at


def test_this_hosts_own_volumes(tmp_path: Path) -> None:
    [volume] = sample_volumes([str(tmp_path)])
    stats = os.statvfs(tmp_path)
    assert volume.total_bytes == stats.f_frsize * stats.f_blocks
    assert os.path.ismount(volume.mount)
