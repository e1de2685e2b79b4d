"""The arithmetic of an estimate, against figures that the engines' makers publish."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from supervisor.contracts.engine import ENGINE_IDS, EngineId
from supervisor.contracts.model import CacheLayer, Fit, ModelFacts, Room, Serving, Unreadable
from supervisor.models.cache import cache_bytes
from supervisor.models.estimate import GIB, MIB, estimate, size

LLAMA_8B = ModelFacts(
    format="safetensors",
    architecture="LlamaForCausalLM",
    weights_bytes=16_060_522_496,
    layers=(CacheLayer(count=32, keys=1024, values=1024),),
    context_length=131_072,
    embedding_length=4096,
    feed_forward_length=14_336,
    vocabulary=128_256,
    dtype="bfloat16",
)
"""Llama 3.1 8B: 32 layers, 8 heads of 128 for keys and values (its config and index)."""


def card(free: float, total: float = 80, name: str = "GPU-0") -> Room:
    return Room(
        device=name,
        accelerator="cuda",
        total=int(total * GIB),
        free=int(free * GIB),
        hosts=False,
    )


def host(free: float) -> Room:
    memory = int(free * GIB)
    return Room(device="cpu:0", accelerator="cpu", total=64 * GIB, free=memory, hosts=True)


def vllm(context: int, fraction: float = 0.9) -> Serving:
    return Serving(context=context, fraction=fraction)


def judged(engine: EngineId, serving: Serving, *rooms: Room) -> Fit:
    return estimate(engine, LLAMA_8B, serving, rooms)


@pytest.mark.parametrize(
    ("kind", "a_token"),
    [("auto", 131_072), ("bfloat16", 131_072), ("fp8_e4m3", 65_536), ("float32", 262_144)],
)
def test_a_token_of_llama_3_1_8b(kind: str, a_token: int) -> None:
    """128 KiB a token in 16 bits, as NVIDIA's and vLLM's guides have it: 2 x 32 x 1024 x 2."""
    serving = Serving(key_type=kind, value_type=kind)
    assert cache_bytes("vllm", LLAMA_8B, serving, 1) == a_token


def test_vllm_takes_its_fraction_whatever_it_needs() -> None:
    fit = judged("vllm", vllm(8192), card(79))
    assert fit.fits is True
    assert fit.kv_bytes == GIB
    assert fit.need_bytes == int(0.9 * 80 * GIB)
    assert (
        judged("vllm", vllm(8192), card(70)).fits is False
    )  # as it says itself: less than desired


def test_vllm_needs_more_than_its_fraction() -> None:
    fit = judged("vllm", vllm(8192), card(24, total=24), card(24, total=24))
    assert fit.fits is True
    fit = judged("vllm", vllm(131_072, 0.5), card(24, total=24))
    assert fit.fits is False
    assert "0.5" in fit.why
    assert fit.need_bytes == 16_060_522_496 + 16 * GIB + 2 * GIB


def test_vllm_may_choose_its_context() -> None:
    """``--max-model-len auto``."""
    fit = judged("vllm", Serving(fraction=0.9, shrinks=True), card(24, total=24))
    assert fit.fits is True
    assert "as much context as fits" in fit.why
    own = judged("vllm", Serving(fraction=0.9), card(24, total=24))
    assert own.fits is False  # the model's 131072 tokens are 16 GiB


def test_devices_in_step_are_as_good_as_the_fullest() -> None:
    fit = judged("vllm", vllm(8192), card(79), card(10))
    assert fit.free_bytes == 20 * GIB
    assert fit.fits is False


def test_sglangs_fraction_holds_weights_and_cache() -> None:
    fit = judged("sglang", Serving(context=8192, fraction=0.8), card(24))
    kept = 16_060_522_496 + GIB
    assert fit.need_bytes == pytest.approx(kept / 0.8, abs=2)
    assert fit.fits is True
    assert judged("sglang", Serving(context=65_536, fraction=0.8), card(24)).fits is False


def test_mlx_grows_as_it_is_used() -> None:
    fit = judged("mlx", Serving(), host(64))
    assert (fit.fits, fit.kv_bytes) == (True, 0)
    assert "128 KiB a token" in fit.why


def test_layers_spread_over_all_devices() -> None:
    serving = Serving(context=8192, splits="layers", key_type="f16", value_type="f16")
    fit = judged("llamacpp", serving, card(12, name="a"), card(6, name="b"))
    assert fit.free_bytes == 18 * GIB
    assert fit.fits is True
    fit = judged("llamacpp", serving, card(12, name="a"), card(2, name="b"))
    assert fit.fits is False
    assert "run on the CPU" in fit.why


def test_llama_server_helps_itself_to_less_context() -> None:
    serving = Serving(pooled=True, slots=4, splits="layers", shrinks=True)
    fit = judged("llamacpp", serving, card(20))
    assert fit.fits is None
    assert "as many as fit" in fit.why
    assert judged("llamacpp", serving, card(10)).fits is False


def test_what_stays_in_host_memory_is_no_reason_to_say_no() -> None:
    for more in ({"device_layers": 10}, {"device_layers": 0}, {"keeps_back": True}):
        serving = replace(Serving(context=8192, splits="layers"), **more)
        fit = judged("llamacpp", serving, card(10))
        assert fit.fits is None
        assert "keeps a part of it in host memory" in fit.why
    all_of_them = Serving(context=8192, splits="layers", device_layers=99)
    assert judged("llamacpp", all_of_them, card(10)).fits is False


def test_a_gpu_on_the_hosts_memory_is_a_gpu() -> None:
    """GB10: vLLM takes its share of it as of a card's; on a processor it does not."""
    gb10 = Room(device="GPU-0", accelerator="cuda", total=128 * GIB, free=125 * GIB, hosts=True)
    fit = judged("vllm", vllm(8192), gb10)
    assert fit.need_bytes == int(0.9 * 128 * GIB)
    fit = judged("vllm", vllm(8192), host(60))
    assert fit.need_bytes == 16_060_522_496 + 4 * GIB + GIB


def test_what_is_not_known_is_not_guessed() -> None:
    nowhere = Room(device="GPU-0", accelerator="cuda", total=None, free=None, hosts=False)
    assert judged("vllm", vllm(8192), nowhere).fits is None
    fit = estimate("vllm", Unreadable("it is damaged"), vllm(1), (card(1),))
    assert (fit.fits, fit.need_bytes, fit.free_bytes) == (None, None, GIB)
    assert "damaged" in fit.why
    bare = ModelFacts(format="safetensors", architecture="x", weights_bytes=GIB, layers=())
    assert estimate("vllm", bare, Serving(), (card(60),)).fits is None
    assert estimate("vllm", bare, Serving(), (card(1),)).fits is False


def test_unified_devices_have_one_memory() -> None:
    both = Room(device="metal:0", accelerator="metal", total=64 * GIB, free=30 * GIB, hosts=True)
    fit = judged("llamacpp", Serving(context=256, splits="layers"), both, host(30))
    assert fit.free_bytes == 30 * GIB


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (MIB, "1 MiB"),
        (1000 * MIB, "0.977 GiB"),
        (-1, "-1 bytes"),
    ],
)
def test_sizes_for_people(count: int, text: str) -> None:
    assert size(count) == text


@given(
    st.sampled_from(ENGINE_IDS),
    st.builds(
        Serving,
        context=st.none() | st.integers(1, 1 << 40),
        slots=st.integers(1, 1 << 20),
        pooled=st.booleans(),
        key_type=st.text(max_size=8),
        micro_batch=st.integers(1, 1 << 30),
        fraction=st.none() | st.floats(0.01, 1),
        cache_bytes=st.none() | st.integers(1, 1 << 62),
        splits=st.sampled_from(["layers", "copies"]),
    ),
    st.lists(
        st.builds(
            Room,
            device=st.just("d"),
            accelerator=st.sampled_from(["cuda", "metal", "cpu", None]),
            total=st.none() | st.integers(0, 1 << 50),
            free=st.none() | st.integers(0, 1 << 50),
            hosts=st.booleans(),
        ),
        max_size=3,
    ),
)
def test_it_is_total_and_adds_up(engine: EngineId, serving: Serving, rooms: list[Room]) -> None:
    fit = estimate(engine, LLAMA_8B, serving, rooms)
    assert fit.need_bytes == (fit.weights_bytes or 0) + (fit.kv_bytes or 0) + (
        fit.overhead_bytes or 0
    )
    if fit.fits:
        assert fit.free_bytes is not None
        assert fit.need_bytes <= fit.free_bytes
