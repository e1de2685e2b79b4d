import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from supervisor.instances.codec import encode_record
from supervisor.instances.durable import StoreError
from supervisor.instances.state_dir import StateDirBusy, lock_state_dir, supervisor_id
from tests.instances.builders import a_record
from tests.instances.children import as_nobody, on_small_disk, run_child

HOLD = """
import sys, time
from supervisor.instances.state_dir import lock_state_dir
lock = lock_state_dir(sys.argv[1])
print("held", flush=True)
time.sleep(60)
"""


def test_an_id_is_made_once(tmp_path: Path) -> None:
    made = supervisor_id(tmp_path / "state")
    assert supervisor_id(tmp_path / "state") == made
    assert len(made) == 16
    assert supervisor_id(tmp_path / "other") != made
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "state" / "supervisor-id").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", [b"", bytes(17), b"0123", b"\xff\xfe", b"not an id at all"])
def test_a_lost_id_is_taken_from_the_records(tmp_path: Path, content: bytes) -> None:
    folder = tmp_path / "instances"
    folder.mkdir()
    folder.joinpath("a.json").write_bytes(b"{")
    folder.joinpath("b.json").mkdir()
    os.mkfifo(folder / "c.json")
    folder.joinpath("d.json").write_bytes(b'{"supervision":null}')
    folder.joinpath("e.json").write_bytes(encode_record(a_record("e", supervisor_id="?")))
    folder.joinpath("f.json").write_bytes(encode_record(a_record("f")))
    tmp_path.joinpath("supervisor-id").write_bytes(content)
    assert supervisor_id(tmp_path) == "0123456789abcdef"
    folder.joinpath("f.json").unlink()
    assert supervisor_id(tmp_path) == "0123456789abcdef"


def test_a_lost_id_that_nobody_tells_is_made_anew(tmp_path: Path) -> None:
    tmp_path.joinpath("supervisor-id").write_bytes(bytes(17))
    assert len(supervisor_id(tmp_path)) == 16


def test_one_daemon_owns_a_state_directory(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with lock_state_dir(state) as lock:
        with pytest.raises(StateDirBusy, match=f"pid {os.getpid()};") as caught:
            lock_state_dir(state)
        assert caught.value.pid == os.getpid()
        lock.release()
        lock_state_dir(state).release()
    lock_state_dir(state).release()


def test_another_process_is_named_and_its_death_frees(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(StateDirBusy) as caught:
            lock_state_dir(tmp_path)
        assert caught.value.pid == holder.pid
        holder.send_signal(signal.SIGKILL)
    lock_state_dir(tmp_path).release()


def test_a_lock_does_not_go_to_children(tmp_path: Path) -> None:
    with (
        lock_state_dir(tmp_path),
        subprocess.Popen(["sleep", "60"], close_fds=False) as child,
    ):
        held = [os.readlink(entry) for entry in Path(f"/proc/{child.pid}/fd").iterdir()]
        child.kill()
    assert str(tmp_path / "lock") not in held


def test_a_lock_file_that_was_removed_meanwhile_is_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between our open and our lock somebody cleans up: the file we lock must be the one others
    will find.
    """
    real = os.open
    opened: list[str | Path] = []

    def open_and_lose(path: str | Path, flags: int, mode: int = 0o777) -> int:
        descriptor = real(path, flags, mode)
        if str(path).endswith("lock") and not opened:
            opened.append(path)
            os.unlink(path)
        return descriptor

    monkeypatch.setattr(os, "open", open_and_lose)
    with lock_state_dir(tmp_path), pytest.raises(StateDirBusy):
        lock_state_dir(tmp_path)


def test_a_holder_that_left_no_name(tmp_path: Path) -> None:
    with lock_state_dir(tmp_path):
        tmp_path.joinpath("lock").write_text("")
        with pytest.raises(StateDirBusy, match="another daemon") as caught:
            lock_state_dir(tmp_path)
        assert caught.value.pid is None


def test_a_place_that_cannot_be_used(shared_path: Path) -> None:
    def body() -> None:
        for use in (lock_state_dir, supervisor_id):
            with pytest.raises(StoreError) as caught:
                use(shared_path / "state")
            assert caught.value.reason == "denied"

    as_nobody(body)
    with pytest.raises(StoreError) as caught:
        lock_state_dir("/dev/null/state")
    assert caught.value.reason == "io"


def test_a_full_disk_does_not_keep_a_daemon_from_its_engines(tmp_path: Path) -> None:
    def body() -> None:
        lock_state_dir(tmp_path).release()
        with pytest.raises(OSError, match="No space"):
            tmp_path.joinpath("filler").write_bytes(bytes(1 << 20))
        tmp_path.joinpath("lock").write_bytes(b"")
        with lock_state_dir(tmp_path), pytest.raises(StateDirBusy):
            lock_state_dir(tmp_path)

    on_small_disk(tmp_path, "64k", body)


def test_a_forked_child_reports_its_failures() -> None:
    with pytest.raises(pytest.fail.Exception, match="ZeroDivisionError"):
        run_child(lambda: print(1 // 0))  # noqa: T201
