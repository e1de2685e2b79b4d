"""Paths below roots: links are followed once, and what they led to is what counts."""

import os
from pathlib import Path

import pytest

from supervisor.lifecycle import roots as module
from supervisor.lifecycle.roots import Outside, inside


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "models" / "m").mkdir(parents=True)
    (tmp_path / "models" / "m" / "config.json").write_text("{}")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "secret").write_text("s")
    return tmp_path / "models"


def refused(path: Path | str, *roots: Path) -> str:
    with pytest.raises(Outside) as caught:
        inside(str(path), [str(root) for root in roots])
    return str(caught.value)


def test_what_lies_below_is_itself(root: Path) -> None:
    assert inside(f"{root}/m", [str(root)]) == f"{root}/m"
    assert inside(f"{root}/m/", [str(root)]) == f"{root}/m"
    assert inside(f"{root}/../models/m/.", [str(root)]) == f"{root}/m"
    assert inside(f"{root}/not-there.gguf", [str(root)]) == f"{root}/not-there.gguf"
    assert inside(str(root), [str(root)]) == str(root)
    assert inside(f"{root}/m", ["/"]) == f"{root}/m"


def test_what_lies_beyond_is_refused_whether_it_is_there_or_not(root: Path) -> None:
    outside = root.parent / "elsewhere"
    for path in (outside / "secret", outside / "no", f"{root}/../elsewhere/secret", "/etc/passwd"):
        assert refused(path, root) == f"{path} lies, links followed, below none of them"
    assert refused(f"{root}-other/m", root)
    assert refused(f"{root}/m")


def test_a_link_from_elsewhere_is_followed_once_and_for_all(root: Path) -> None:
    """Whoever owns the link changes nothing by turning it round after the look."""
    link = root.parent / "elsewhere" / "link"
    link.symlink_to(root / "m")
    second = root.parent / "elsewhere" / "second"
    second.symlink_to("link")
    for one in (link, second):
        assert inside(str(one), [str(root)]) == f"{root}/m"
    folder = root.parent / "elsewhere" / "folder"
    folder.symlink_to(root)
    assert inside(f"{folder}/m", [str(root)]) == f"{root}/m"


def test_a_link_out_of_a_root_is_refused(root: Path) -> None:
    (root / "out").symlink_to(root.parent / "elsewhere")
    (root / "m" / "tokenizer.json").symlink_to(root.parent / "elsewhere" / "secret")
    assert "tokenizer.json lies" in refused(root / "m", root)
    assert refused(root / "out", root)
    assert refused(root / "out" / "secret", root)
    assert inside(f"{root}/m", [str(root), f"{root.parent}/elsewhere"]) == f"{root}/m"


def test_folders_behind_links_are_looked_through(root: Path) -> None:
    (root / "other").mkdir()
    (root / "m" / "sub").symlink_to(root / "other")
    (root / "other" / "back").symlink_to(root / "m")
    assert inside(f"{root}/m", [str(root)]) == f"{root}/m"
    (root / "other" / "x").symlink_to("/etc/hostname")
    assert "other/x lies" in refused(root / "m", root)


def test_a_root_may_be_a_link_itself(root: Path) -> None:
    alias = root.parent / "alias"
    alias.symlink_to(root)
    assert inside(f"{alias}/m", [str(alias)]) == f"{root}/m"
    assert inside(f"{root}/m", [str(alias)]) == f"{root}/m"


def test_a_download_cache_keeps_the_names_of_its_links(root: Path) -> None:
    """Parts of a split model find each other by name; what the links lead to has other names."""
    (root / "blobs").mkdir()
    snapshot = root / "snapshots"
    snapshot.mkdir()
    for part in (1, 2):
        (root / "blobs" / str(part)).touch()
        (snapshot / f"q-{part:05}-of-00002.gguf").symlink_to(f"../blobs/{part}")
    path = str(snapshot / "q-00001-of-00002.gguf")
    assert inside(path, [str(root)]) == path
    (snapshot / "q-00002-of-00002.gguf").unlink()
    (snapshot / "q-00002-of-00002.gguf").symlink_to(root.parent / "elsewhere" / "secret")
    assert "q-00002-of-00002.gguf lies" in refused(path, root)


def test_links_in_a_circle_end(root: Path) -> None:
    outside = root.parent / "elsewhere"
    (outside / "a").symlink_to("b")
    (outside / "b").symlink_to("a")
    assert refused(outside / "a", root)


def test_a_folder_with_more_than_a_model_has_is_not_looked_through(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_FILES", 3)
    for number in range(3):
        (root / "m" / str(number)).touch()
    assert "holds more than the 3 files" in refused(root / "m", root)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look everywhere")
def test_a_folder_that_may_not_be_looked_at_is_refused(root: Path) -> None:
    (root / "m").chmod(0o300)
    try:
        assert "cannot be looked at" in refused(root / "m", root)
    finally:
        (root / "m").chmod(0o700)
