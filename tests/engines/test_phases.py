"""Phases out of real logs: short pieces of captured and of published ones, in their very shape."""

# Lines of logs are as long as engines write them.
# ruff: noqa: E501

import re
import time

import pytest

from supervisor.contracts.engine import ENGINE_IDS, EngineId
from supervisor.engines.phases import PHASES, PhaseSeen, is_request, phase_of

VLLM_CPU = """\
(APIServer pid=19916) INFO 11-30 20:01:28 [model.py:733] Resolved architecture: LlamaForCausalLM
(APIServer pid=19916) INFO 11-30 20:01:28 [compilation.py:317] Enabled custom fusions: norm_quant, act_quant
Triton is installed, but doesn't include CPU backend. Disabling Triton.
(EngineCore pid=21622) INFO 11-30 20:02:11 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: model='/srv/engines/models/tiny-llama', speculative_config=None
(Worker pid=23669) INFO 11-30 20:02:50 [cpu_model_runner.py:68] Starting to load model /srv/engines/models/tiny-llama...
(Worker pid=23669) INFO 11-30 20:02:50 [weight_utils.py:1108] Filesystem type for checkpoints: EXT4. Checkpoint size: 0.00 GiB. Available RAM: 21.38 GiB.
\rLoading safetensors checkpoint shards:   0% Completed | 0/1 [00:00<?, ?it/s]
\rLoading safetensors checkpoint shards: 100% Completed | 1/1 [00:00<00:00, 80.62it/s]

(Worker pid=23669) INFO 11-30 20:02:50 [default_loader.py:501] Loading weights took 0.02 seconds
(EngineCore pid=21622) INFO 11-30 20:02:52 [torch_utils.py:295] Reducing Torch threads from 2 to 1 for serving.
(EngineCore pid=21622) INFO 11-30 20:02:52 [kv_cache_utils.py:2327] CPU KV cache size: 524,288 tokens, Maximum concurrency for 512 tokens per request: 1024.00x
(EngineCore pid=21622) INFO 11-30 20:02:52 [core.py:402] init engine (profile, create kv cache, warmup model) took 0.85 s
(EngineCore pid=21622) WARNING 11-30 20:02:54 [vllm.py:1703] Enforce eager set, disabling torch.compile, CUDAGraphs, and JIT kernel warmup.
(APIServer pid=19916) INFO 11-30 20:02:55 [entry.py:140] Starting vLLM server on http://127.0.0.1:59585
(APIServer pid=19916) INFO 11-30 20:02:55 [launcher.py:195] Route: /health, Methods: GET
INFO:     Application startup complete.
INFO:     127.0.0.1:45488 - "GET /health HTTP/1.1" 200 OK
"""
VLLM_GPU = """\
(EngineCore_DP0 pid=191) INFO 03-18 13:32:30 [gpu_model_runner.py:3562] Starting to load model org/a-14B...
model-00001-of-00004.safetensors:  12%|#         | 587M/4.90G [00:14<01:44, 41.3MB/s]
(EngineCore_DP0 pid=191) INFO 03-18 13:39:38 [weight_utils.py:487] Time spent downloading weights for org/a-14B: 417.087123 seconds
Loading safetensors checkpoint shards:  25% Completed | 1/4 [00:08<00:25,  8.52s/it]
Loading safetensors checkpoint shards: 100% Completed | 4/4 [01:23<00:00, 20.82s/it]
(EngineCore_DP0 pid=191) INFO 03-18 13:41:09 [backends.py:643] Using cache directory: /root/.cache/vllm/torch_compile_cache/4aae/rank_0_0/backbone for vLLM's torch.compile
(EngineCore_DP0 pid=191) INFO 03-18 13:41:09 [backends.py:703] Dynamo bytecode transform time: 5.73 s
(EngineCore_DP0 pid=191) INFO 03-18 13:41:26 [backends.py:278] Compiling a graph for compile range (1, 2048) takes 15.02 s
(EngineCore_DP0 pid=191) INFO 03-18 13:41:26 [monitor.py:34] torch.compile takes 20.75 s in total
(EngineCore pid=28132) INFO 04-20 20:13:51 [kv_cache_utils.py:1319] GPU KV cache size: 12,624 tokens
Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  50%|#####     | 2/4 [00:00<00:00, 35.23it/s]
Capturing CUDA graphs (decode, FULL): 100%|##########| 3/3 [00:00<00:00, 37.88it/s]
(EngineCore pid=28132) INFO 04-20 20:13:52 [gpu_model_runner.py:6053] Graph capturing finished in 1 secs, took 0.03 GiB
"""
SGLANG = """\
[2025-05-02 16:13:41] Init torch distributed begin.
[2025-05-02 16:13:42] Load weight begin. avail mem=3.23 GB
Loading safetensors checkpoint shards:   0% Completed | 0/1 [00:00<?, ?it/s]
[2025-05-02 16:14:33] Load weight end. type=Qwen3ForCausalLM, dtype=torch.bfloat16, avail mem=2.03 GB, mem usage=1.20 GB.
[2025-05-02 16:14:33] Capture cuda graph begin. This can take up to several minutes. avail mem=0.00 GB
Capturing batches (bs=1 avail_mem=56.57 GB):  90%|######### | 18/20 [00:00<00:00, 27.28it/s]
[2025-05-02 16:14:58] Capture cuda graph end. Time elapsed: 24.85 s. mem usage=0.00 GB. avail mem=0.00 GB.
[2025-05-02 16:14:59] INFO:     Application startup complete.
[2025-05-02 16:15:37] The server is fired up and ready to roll!
"""
LLAMACPP = """\
0.00.002.109 I srv  llama_server: initializing ...
0.00.007.844 I srv    load_model: loading model '/srv/engines/models/SmolLM2-135M-Instruct.Q4_1.gguf'
0.00.396.373 I cmn          init: llama threadpool init, n_threads = 2
0.00.454.067 I srv    load_model: initializing, n_slots = 4, n_ctx_slot = 2048, kv_unified = 'true'
0.00.457.561 I srv  llama_server: model loaded
0.00.457.568 I srv  llama_server: listening on http://127.0.0.1:42065
0.00.833.067 I slot print_timing: id  3 | task 0 | prompt eval time =     185.99 ms /    32 tokens
"""
LLAMACPP_VERBOSE = """\
0.00.023.552 I load_tensors: loading model tensors, this can take a while... (mmap = true)
..................................................................................
0.00.047.192 W common_init_from_params: warming up the model with an empty run - please wait ... (--no-warmup to disable)
"""
MLX = """\
  warnings.warn(
2026-11-30 19:39:19,635 - INFO - Starting httpd at 127.0.0.1 on port 44461...
127.0.0.1 - - [30/Nov/2026 19:39:19] "GET /health HTTP/1.1" 200 -
Fetching 11 files:  64%|######4   | 7/11 [00:00<00:00, 31.25it/s]
2026-11-30 19:39:19,841 - INFO - Prompt Cache: 0 sequences, 0.00 GB
"""
TABBY = """\
2026-11-30 19:55:55.129 INFO:     The 'config.yml' file cannot be found
2026-11-30 19:56:01.002 INFO:     Loading model: /models/a
2026-11-30 19:56:01.003 INFO:     Loading with a manual GPU split (or a one GPU setup)
2026-11-30 19:56:08.800 INFO:     Model successfully loaded.
2026-11-30 19:56:08.877 INFO:     Starting OAI API
"""

LOADING, COMPILING, CAPTURING = "loading-weights", "compiling", "capturing-graphs"


def story(engine: EngineId, log: str) -> list[PhaseSeen]:
    """What changes from line to line."""
    told: list[PhaseSeen] = []
    for line in re.split(r"\r\n|[\r\n]", log):
        seen = phase_of(engine, line)
        if seen and (not told or seen != told[-1]):
            told.append(seen)
    return told


@pytest.mark.parametrize(
    ("engine", "log", "phases"),
    [
        ("vllm", VLLM_CPU, [LOADING, "warming-up"]),
        (
            "vllm",
            VLLM_GPU,
            [LOADING, "downloading", LOADING, COMPILING, "warming-up", CAPTURING, "warming-up"],
        ),
        ("sglang", SGLANG, [LOADING, CAPTURING, "warming-up"]),
        ("llamacpp", LLAMACPP, [LOADING, "warming-up"]),
        ("llamacpp", LLAMACPP_VERBOSE, [LOADING, "warming-up"]),
        ("mlx", MLX, [LOADING, "downloading"]),
        ("exllamav3", TABBY, [LOADING, "warming-up"]),
    ],
)
def test_the_phases_of_a_real_start(engine: EngineId, log: str, phases: list[str]) -> None:
    told = [seen.phase for seen in story(engine, log)]
    assert [phase for at, phase in enumerate(told) if told[at - 1 : at] != [phase]] == phases


def test_a_bar_says_how_far_it_is() -> None:
    assert story("vllm", VLLM_GPU)[1] == PhaseSeen("downloading", "12 %")
    details = [seen.detail for seen in story("vllm", VLLM_GPU)]
    assert {"25 %, 1/4", "100 %, 4/4", "50 %, 2/4", "100 %, 3/3"} <= set(details)
    assert PhaseSeen("capturing-graphs", "90 %, 18/20") in story("sglang", SGLANG)
    assert PhaseSeen("downloading", "64 %, 7/11") in story("mlx", MLX)


def test_a_ready_engine_is_in_no_phase() -> None:
    for line in VLLM_CPU.splitlines()[-4:] + LLAMACPP.splitlines()[-3:]:
        assert phase_of("vllm", line) is None
        assert phase_of("llamacpp", line) is None


@pytest.mark.parametrize("engine", ENGINE_IDS)
def test_every_engine_has_rows_and_no_line_is_too_much(engine: EngineId) -> None:
    assert PHASES[engine]
    for hostile in ("", "%" * 16_384, "1/" * 8192, "Fetching " * 1800, "9" * 16_384 + "%"):
        begun = time.perf_counter()
        phase_of(engine, hostile)
        is_request(hostile)
        assert time.perf_counter() - begun < 0.1


def test_our_own_probes_are_told_from_news() -> None:
    assert is_request('127.0.0.1 - - [30/Nov/2026 19:39:19] "GET /health HTTP/1.1" 200 -')
    assert is_request('INFO:     127.0.0.1:45488 - "POST /v1/chat/completions HTTP/1.1" 200 OK')
    assert is_request("stub: GET /health HTTP/1.1")
    assert not is_request("Loading weights took 0.02 seconds")
