"""A model made of links is whole in its container too."""

from pathlib import Path

import pytest

from supervisor.contracts.engine import Mount
from supervisor.lifecycle.linked import linked_mounts


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "store").mkdir()
    return tmp_path / "store"


def file(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x")
    return path


def seen(model: Path, root: Path, to: str) -> dict[str, str]:
    """What goes in besides, by where it is inside."""
    mount = Mount(from_=str(root), to=to, read_only=True)
    mounts = linked_mounts(str(model), mount)
    assert all(one.read_only for one in mounts)
    return {one.to: one.from_ for one in mounts}


def test_plain_files_need_nothing(tmp_path: Path) -> None:
    model = tmp_path / "model"
    file(model / "config.json")
    assert seen(model, model, "/models/model") == {}
    assert seen(tmp_path / "absent", tmp_path, "/models") == {}


def test_a_link_with_a_whole_path(tmp_path: Path, store: Path) -> None:
    blob, model = file(store / "blob"), tmp_path / "model"
    file(model / "config.json")
    (model / "w.safetensors").symlink_to(blob)
    assert seen(model, model, "/models/model") == {str(blob): str(blob)}


def test_a_link_that_goes_up_is_followed_from_where_it_is_inside(
    tmp_path: Path, store: Path
) -> None:
    blob, model = file(store / "blob"), tmp_path / "model"
    model.mkdir()
    (model / "w.safetensors").symlink_to("../store/blob")
    assert seen(model, model, "/models/model") == {"/models/store/blob": str(blob)}


def test_a_link_to_a_neighbour_is_there_already(tmp_path: Path) -> None:
    model = tmp_path / "model"
    file(model / "a")
    (model / "b").symlink_to("a")
    (model / "lost").symlink_to("nowhere")
    assert seen(model, model, "/models/model") == {}


def test_a_chain_of_links(tmp_path: Path, store: Path) -> None:
    blob, folder = file(store / "blob"), tmp_path / "models"
    folder.mkdir()
    (folder / "m.gguf").symlink_to("current.gguf")
    (folder / "current.gguf").symlink_to(blob)
    assert seen(folder / "m.gguf", folder, "/models") == {str(blob): str(blob)}
    (folder / "loop").symlink_to("loop")
    assert seen(folder / "loop", folder, "/models") == {}


def test_all_parts_of_a_split_model_and_no_other(tmp_path: Path, store: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    names = [f"m-0000{number}-of-00002.gguf" for number in (1, 2)]
    for name in (*names, "other.gguf"):
        (folder / name).symlink_to(file(store / name))
    wanted = {str(store / name): str(store / name) for name in names}
    assert seen(folder / names[0], folder, "/models") == wanted


def test_a_linked_folder_opens_nothing(tmp_path: Path, store: Path) -> None:
    file(store / "tokenizer" / "vocab.json")
    model = tmp_path / "model"
    file(model / "config.json")
    (model / "tokenizer").symlink_to(store / "tokenizer")
    (model / "weights").symlink_to("/")
    assert seen(model, model, "/models/model") == {}


def test_the_cache_of_hugging_face_is_mounted_whole(tmp_path: Path) -> None:
    repository = tmp_path / "models--org--name"
    file(repository / "blobs" / "abc")
    snapshot = repository / "snapshots" / "1"
    snapshot.mkdir(parents=True)
    (snapshot / "model.safetensors").symlink_to("../../blobs/abc")
    assert seen(snapshot, repository, "/models/models--org--name") == {}
