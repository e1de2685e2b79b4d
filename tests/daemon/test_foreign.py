"""What somebody put in the place of the daemon's own files: moved away, or refused in one line."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.daemon.engined import Engined, refused, stop


def folder(path: Path) -> None:
    path.mkdir(parents=True)
    (path / "of-mine").touch()


def pipe(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)


def text(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("mine")


@pytest.mark.parametrize(
    ("place", "put"),
    [
        ("state/supervisor-id", folder),
        ("state/supervisor-id", pipe),
        ("state/quarantine", text),
        ("state/quarantine", pipe),
        ("state/tombstones", text),
        ("state/tombstones", pipe),
        ("log/events.jsonl", folder),
        ("log/events.jsonl", pipe),
    ],
)
def test_what_is_in_the_way_is_moved_and_kept(
    engined: Engined, place: str, put: Callable[[Path], None]
) -> None:
    path = engined.folder / place
    put(path)
    client = engined.start()
    assert client.launch(engined.params()).state == "ready"
    stop(client)
    [aside] = path.parent.glob(f"{path.name}.foreign*")
    assert aside.is_fifo() if put is pipe else aside.exists()
    if path.name in ("quarantine", "tombstones"):
        [told] = [it for it in engined.events() if it["kind"] == "warning"]
        assert (told["code"], str(aside) in told["detail"]) == ("moved-aside", True)


@pytest.mark.parametrize(
    ("place", "put"),
    [
        ("state/lock", folder),
        ("state/lock", pipe),
        ("state/instances", text),
        ("state/instances", pipe),
    ],
)
def test_what_nobody_may_move_is_refused_in_a_line(
    engined: Engined, place: str, put: Callable[[Path], None]
) -> None:
    """The lock may be another daemon's, and the records may come back with a mount."""
    path = engined.folder / place
    put(path)
    ended = refused(engined.config)
    assert ended.returncode == 69
    said = ended.stderr.decode().splitlines()[-1]
    assert said.startswith("engined: ")
    assert str(path) in said
    assert b"Traceback" not in ended.stderr
    path.rename(path.with_name("elsewhere"))
    assert engined.start().info().pid == engined.pid
