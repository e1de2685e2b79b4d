"""What others than admins may launch: each bound, what it says, and how it is widened."""

import time
from pathlib import Path
from typing import Any

import pytest

from supervisor.contracts.config import AccessConfig, Config, Recipe, TrustedArgs
from supervisor.contracts.engine import ServingOptions
from supervisor.contracts.instance import LaunchParams
from supervisor.lifecycle import bounds
from supervisor.lifecycle.bounds import within_bounds
from supervisor.lifecycle.errors import Forbidden, InvalidLaunch, NoSuchRecipe, NotDone
from supervisor.patience import Patience

pytestmark = pytest.mark.anyio

RECIPE = Recipe(
    engine="vllm",
    model_path="/anywhere/m",
    runtime="docker",
    docker_image="mine/vllm:1",
    extra_args=("--trust-remote-code",),
    env={"VLLM_PLUGINS": "x"},
)


class Bounded:
    """A launch within bounds, or the words of the refusal."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "models"
        self.model = self.root / "m.gguf"
        self.root.mkdir()
        self.model.touch()

    async def __call__(self, access: AccessConfig | None = None, **said: Any) -> LaunchParams:
        access = access or AccessConfig(model_roots=(str(self.root),))
        config = Config(access=access, recipes={"r": RECIPE})
        if "recipe" not in said:
            said = {"engine": "llamacpp", "model_path": str(self.model)} | said
        params = LaunchParams(name="a", **said)
        return await within_bounds(params, config, Patience("looking", 1))

    async def refuses(self, access: AccessConfig | None = None, **said: Any) -> str:
        with pytest.raises(Forbidden) as caught:
            await self(access, **said)
        return str(caught.value)

    def access(self, **more: Any) -> AccessConfig:
        return AccessConfig(model_roots=(str(self.root),), **more)


@pytest.fixture
def bounded(tmp_path: Path) -> Bounded:
    return Bounded(tmp_path)


async def test_what_is_ordinary_is_as_it_was(bounded: Bounded) -> None:
    said: dict[str, Any] = {
        "extra_args": ("-c", "4096"),
        "env": {"HF_TOKEN": "x", "CUDA_VISIBLE_DEVICES": "0"},
        "options": ServingOptions(max_context_length=4096),
        "port": 8000,
        "restart": "always",
    }
    params = await bounded(**said)
    assert params == LaunchParams(
        name="a", engine="llamacpp", model_path=str(bounded.model), **said
    )


@pytest.mark.parametrize(
    ("said", "key"),
    [
        ({"binary": "/bin/sh"}, "access.binaries"),
        ({"binary": "sh"}, "access.binaries"),
        ({"docker_image": "evil/x"}, "access.images"),
        ({"env": {"BASH_ENV": "/x"}}, "access.env"),
        ({"env": {"PYTHONPATH": "/x"}}, "access.env"),
        ({"env": {"LD_PRELOAD": "/x"}}, "access.env"),
        ({"env": {"PATH": "/x"}}, "access.env"),
        ({"env": {"LLAMA_ARG_LOG_FILE": "/x"}}, "access.env"),
        ({"extra_args": ("--log-file", "/x")}, "access.args"),
        ({"extra_args": ("--slot-save-path", "/x")}, "access.args"),
        ({"extra_args": ("-m", "/x")}, "access.args"),
        ({"engine": "vllm", "extra_args": ("--tool-parser-plugin", "/x")}, "access.args"),
        ({"engine": "mlx", "options": ServingOptions(trust_remote_code=True)}, "access.args"),
        ({"model_path": "/etc/passwd"}, "access.model-roots"),
        ({"extra_args": ("--mmproj", "/etc/passwd")}, "access.model-roots"),
    ],
)
async def test_what_is_beyond_names_its_bound(
    bounded: Bounded, said: dict[str, Any], key: str
) -> None:
    text = await bounded.refuses(**said)
    assert f"`{key}" in text
    assert "an admin can list" in text


async def test_a_command_is_for_admins_and_recipes(bounded: Bounded) -> None:
    assert "`command` takes the role admin" in await bounded.refuses(command=("/bin/sh",))


@pytest.mark.parametrize("said", [{"port": 443}, {"extra_args": ("--port", "80")}])
async def test_a_low_port_is_for_admins(bounded: Bounded, said: dict[str, Any]) -> None:
    assert "as all below 1024 do" in await bounded.refuses(**said)
    assert (await bounded(port=1024)).port == 1024


async def test_without_roots_only_recipes_have_models(bounded: Bounded) -> None:
    assert "which names none" in await bounded.refuses(AccessConfig())
    params = LaunchParams(name="a", recipe="r")
    assert await bounded(AccessConfig(), recipe="r") == params


@pytest.mark.parametrize(
    ("said", "more"),
    [
        ({"binary": "/opt/x"}, {"binaries": ("/opt/x",)}),
        ({"docker_image": "vllm/vllm-openai:v1"}, {"images": ("vllm/vllm-openai:*",)}),
        ({"env": {"HTTPS_PROXY": "x"}}, {"env": ("HTTPS_PROXY",)}),
        ({"env": {"NCCL_ALGO": "x"}}, {"env": ("NCCL_*",)}),
        (
            {"extra_args": ("--host", "0.0.0.0")},
            {"args": TrustedArgs(llamacpp=("--host",))},
        ),
        (
            {"engine": "vllm", "options": ServingOptions(trust_remote_code=True)},
            {"args": TrustedArgs(vllm=("--trust-remote-code",))},
        ),
    ],
)
async def test_each_bound_can_be_widened(
    bounded: Bounded, said: dict[str, Any], more: dict[str, Any]
) -> None:
    await bounded.refuses(**said)
    await bounded(bounded.access(**more), **said)


async def test_a_flag_that_is_listed_for_one_engine_is_not_for_another(bounded: Bounded) -> None:
    access = bounded.access(args=TrustedArgs(vllm=("--host",)))
    assert "--host" in await bounded.refuses(access, extra_args=("--host", "0.0.0.0"))


async def test_only_the_listed_recipes_where_some_are_listed(bounded: Bounded) -> None:
    access = bounded.access(recipes=("other",))
    assert "which are: other" in await bounded.refuses(access, recipe="r")
    assert "only recipes" in await bounded.refuses(access)
    await bounded(bounded.access(recipes=("r",)), recipe="r")


async def test_a_recipes_own_words_are_an_admins(bounded: Bounded) -> None:
    await bounded(recipe="r", port=8009, options=ServingOptions(max_context_length=1))
    assert "--log-config-file" in await bounded.refuses(
        recipe="r", extra_args=("--log-config-file", "x")
    )


@pytest.mark.parametrize(
    "said",
    [
        {"model_path": "{root}/m.gguf"},
        {"engine": "sglang"},
        {"runtime": "process"},
        {"docker_image": "vllm/vllm-openai:1"},
    ],
)
async def test_but_not_for_another_launch_than_it_is(
    bounded: Bounded, said: dict[str, str]
) -> None:
    """A recipe that trusts its model's code, or runs it inside a container, trusts no other's."""
    said = {name: text.format(root=bounded.root) for name, text in said.items()}
    access = bounded.access(images=("vllm/*", "mine/*"))
    text = await bounded.refuses(access, recipe="r", **said)
    assert "--trust-remote-code" in text or "VLLM_PLUGINS" in text


async def test_nor_for_a_file_of_the_clients(bounded: Bounded) -> None:
    """A tokenizer's code is run with the model's."""
    args = ("--tokenizer", str(bounded.model))
    access = bounded.access(images=("*",), env=("*",))
    await bounded(engine="vllm", extra_args=args)
    assert "model-roots" in await bounded.refuses(access, recipe="r", extra_args=args)


async def test_the_path_that_is_launched_is_the_one_that_was_looked_at(
    bounded: Bounded, tmp_path: Path
) -> None:
    link = tmp_path / "mine"
    link.symlink_to(bounded.root)
    params = await bounded(
        model_path=f"{link}/m.gguf", extra_args=("-c", "1", "--mmproj", f"{link}/m.gguf")
    )
    link.unlink()
    link.symlink_to("/etc")
    assert params.model_path == str(bounded.model)
    assert params.extra_args == ("-c", "1", "--mmproj", str(bounded.model))
    params = await bounded(engine="vllm", extra_args=(f"--tokenizer={bounded.root}/./m.gguf",))
    assert params.extra_args == (f"--tokenizer={bounded.root}/m.gguf",)


async def test_a_list_of_files_is_not_taken_for_one(bounded: Bounded) -> None:
    """llama-server splits it at the comma, and reads the second."""
    listed = f"{bounded.root}/m.gguf,/etc/passwd"
    for path in (listed, "relative.gguf", ""):
        assert "absolute path of one file" in await bounded.refuses(extra_args=("--lora", path))


async def test_a_launch_that_makes_no_sense_is_told_so_first(bounded: Bounded) -> None:
    with pytest.raises(NoSuchRecipe):
        await bounded(recipe="nothing")
    with pytest.raises(InvalidLaunch):
        await bounded(model_path="relative")


async def test_a_file_system_that_hangs_makes_nobody_wait_for_good(
    bounded: Bounded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "RESOLVE_S", 0.05)
    monkeypatch.setattr(bounds, "_all_inside", lambda *_: time.sleep(0.3))
    with pytest.raises(NotDone, match="hang"):
        await bounded()
