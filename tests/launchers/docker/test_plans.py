"""Plans of a real llama.cpp, run by a real Docker Engine: what only running them can prove."""

from pathlib import Path

from tests.launchers.docker.home import contained, container_of, opened_with
from tests.parts import real_llama
from tests.parts.dockerd import Dockerd, llama_image


async def test_a_model_that_is_a_link_is_found_in_the_container(
    tmp_path: Path, dockerd: Dockerd
) -> None:
    image = llama_image(dockerd, real_llama.require("genuine-llama-server"))
    (tmp_path / "models").mkdir()
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "blob").write_bytes(real_llama.tiny_gguf().read_bytes())
    for name, target in (("whole", str(tmp_path / "store" / "blob")), ("up", "../store/blob")):
        (tmp_path / "models" / f"{name}.gguf").symlink_to(target)
    async with opened_with(tmp_path / "home", dockerd) as home:
        for name in ("whole", "up"):
            members = contained(
                docker_image=image,
                model_path=str(tmp_path / "models" / f"{name}.gguf"),
                devices=("cpu:0",),
                binary=None,
            )
            promised = (await home.supervisor.plan(home.params("x", **members))).plan
            view = await home.launch(**members)
            assert view.state == "ready"
            inspected = dockerd.inspect(container_of(view))
            assert inspected is not None
            assert {(it.from_, it.to, not it.read_only) for it in promised.mounts} == {
                (it["Source"], it["Destination"], it["RW"]) for it in inspected["Mounts"]
            }
            await home.stop()


async def test_on_the_hosts_network_it_has_the_port_of_its_record(
    tmp_path: Path, dockerd: Dockerd
) -> None:
    image = llama_image(dockerd, real_llama.require("genuine-llama-server"))
    async with opened_with(tmp_path, dockerd, network="host") as home:
        view = await home.launch(
            runtime="docker",
            docker_image=image,
            model_path=str(real_llama.tiny_gguf()),
            devices=("cpu:0",),
        )
        assert view.state == "ready"
        inspected = dockerd.inspect(container_of(view))
        assert inspected is not None
        assert str(view.record.port) in inspected["Config"]["Cmd"]
        await home.stop()
