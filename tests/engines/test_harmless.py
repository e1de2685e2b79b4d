"""What a launch may say without trust: an allow-list, and everything that is not on it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.contracts.engine import ENGINE_IDS, EngineId
from supervisor.engines.harmless import HARMLESS_ENV, judge
from supervisor.engines.registry import SPELLINGS
from supervisor.engines.spelling import Says, Spelling

# What load code, write files or read any file, by the engines' own help texts.
DANGEROUS: dict[EngineId, str] = {
    "vllm": """
        --trust-remote-code --tool-parser-plugin --reasoning-parser-plugin --worker-cls
        --worker-extension-cls --scheduler-cls --middleware --logits-processors
        --model-class-overrides --io-processor-plugin --log-config-file --logging-config
        --kv-transfer-config --ec-transfer-config --tool-server --config --download-dir
        --compilation-config -cc -O3 --profiler-config --lora-modules --default-mm-loras
        --speculative-config -sc --hf-overrides --hf-config-path --model --allowed-local-media-path
        --model-loader-extra-config --load-format --uds --host --ssl-keyfile --additional-config
        --distributed-executor-backend --mm-encoder-fp8-scale-save-path --code-revision
    """,
    "sglang": """
        --trust-remote-code --custom-weight-loader --forward-hooks --tool-server --config
        --enable-custom-logit-processor --hicache-storage-backend --lmcache-config-file
        --download-dir --crash-dump-folder --debug-tensor-dump-output-folder
        --export-metrics-to-file-dir --file-storage-path --log-requests-target --lora-paths
        --modelopt-export-path --model-loader-extra-config --load-format --model-path --model
        --json-model-override-args --sidecar --host --weight-cache-socket
    """,
    "llamacpp": """
        --log-file --slot-save-path --log-prompts-dir --path --media-path --models-dir
        --models-preset --model -m -mu --model-url -hf --hf-repo -dr --tools --agent -ag
        --mcp-servers-config --mcp-servers-json --ui-mcp-proxy --video-ffmpeg-dir --rpc
        --api-key-file --ssl-key-file --lora-scaled --control-vector -lcd -lcs --host
        --ui-config-file --override-kv
    """,
    "mlx": "--trust-remote-code --model --host --chat-template",
    "exllamav3": """
        --config --model-dir --model-name --draft-model-dir --lora-dir --inline-model-loading
        --embedding-model-dir --unsafe-launch --prompt-template --host --disable-auth
        --log-chat-completion-requests
    """,
}


def beyond(engine: EngineId, *args: str, listed: tuple[str, ...] = ()) -> str | None:
    return judge(SPELLINGS[engine], args, listed).beyond


@pytest.mark.parametrize(
    ("engine", "flag"), [(engine, it) for engine, row in DANGEROUS.items() for it in row.split()]
)
def test_what_could_load_code_or_touch_files_takes_trust(engine: EngineId, flag: str) -> None:
    for words in ([flag, "x"], [f"{flag}=x"], [f"{flag} x"], [flag]):
        assert beyond(engine, *words) is not None
    if flag.startswith("--"):
        assert beyond(engine, flag.replace("-", "_").replace("__", "--", 1), "x") is not None
        assert beyond(engine, flag[:-1], "x") is not None  # argparse takes a beginning for it
        assert beyond(engine, flag.upper(), "x") is not None


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ("vllm", "--max-model-len 4096 --enable-prefix-caching -tp 2 --served-model-name a b"),
        ("vllm", "--max_model_len=4096 --api-key k1 k2 --seed -1"),
        ("sglang", "--context-length 4k --disable-radix-cache --log-level info"),
        ("llamacpp", "-c 4096 -ngl 99 --temp 0.2 -fa on --jinja --ctx_size 1 -n -1 -ts 3,1"),
        ("llamacpp", "--metrics --reasoning-budget -1"),
        ("mlx", "--max-tokens 64 --log-level DEBUG --kv-bits 8"),
        ("exllamav3", "--cache-mode Q8 --gpu-split 20 20 --vision true"),
    ],
)
def test_what_tunes_an_engine_needs_no_trust(engine: EngineId, words: str) -> None:
    assert judge(SPELLINGS[engine], words.split()) == judge(SPELLINGS[engine], ())


def test_a_word_is_only_a_value_where_a_flag_takes_one() -> None:
    assert beyond("vllm", "/evil/model") == "the word '/evil/model'"
    assert beyond("vllm", "--enforce-eager", "/evil/model") == "the word '/evil/model'"
    assert beyond("vllm", "--seed", "1", "/evil/model") == "the word '/evil/model'"
    assert beyond("vllm", "--enforce-eager=x") == "a value for --enforce-eager, which takes none"
    assert beyond("vllm", "--seed") == "--seed without a value"
    # llama-server takes whatever comes next for the value; then nothing is left over.
    assert beyond("llamacpp", "--alias", "--log-file", "x") == "--alias without a value"
    assert beyond("vllm", "--", "x") == "the word '--'"
    assert beyond("vllm", "") == "the word ''"
    assert beyond("llamacpp", "--ctx-size 4096 --log-file") == (
        "the word '--ctx-size 4096 --log-file'"
    )


def test_a_refusal_shows_no_secret() -> None:
    assert beyond("llamacpp", "--api-key S3KR1T") == "the word '--api-key ***'"


def test_sglang_knows_no_underscores_and_neither_do_we() -> None:
    assert beyond("sglang", "--log_level", "x") == "--log_level"


def test_files_are_told_for_looking_where_they_lie() -> None:
    args = ["-c", "4", "--mmproj", "/m/p.gguf", "-md", "/m/d.gguf"]
    assert judge(SPELLINGS["llamacpp"], args).files == ((3, 0), (5, 0))
    assert judge(SPELLINGS["vllm"], ["--tokenizer=/m/t"]).files == ((0, len("--tokenizer=")),)
    assert judge(SPELLINGS["vllm"], ["--tokenizer=/m/t"], ["--tokenizer"]).files == ()


def test_a_listed_flag_may_be_said_with_what_follows_it() -> None:
    lora = ("--lora_modules",)
    assert beyond("vllm", "--lora-modules", "a=/x", "b=/y", "--seed", "1", listed=lora) is None
    assert beyond("vllm", "--lora-modules=a", "--config", "x", listed=lora) == "--config"


@pytest.mark.parametrize(
    ("engine", "flag"),
    [
        *((engine, "--trust-remote-code") for engine in ("vllm", "sglang", "mlx")),
        *((engine, None) for engine in ("llamacpp", "exllamav3")),  # their models carry no code
    ],
)
def test_the_knob_that_trusts_a_model_counts_as_its_flag(
    engine: EngineId, flag: str | None
) -> None:
    assert judge(SPELLINGS[engine], (), trusting=True).beyond == flag
    assert judge(SPELLINGS[engine], (), (flag or "--x",), trusting=True).beyond is None


FILES = ("file", "path", "dir", "folder", "config", "plugin", "template", "lora", "adapter")
CODE = ("trust", "cls", "module", "import", "hook", "tool-server", "middleware", "remote", "rpc")
READ = {
    *("--chat-template-kwargs", "--chat-template-args", "--chat-template-content-format"),
    *("--use-default-chat-template", "--override-generation-config"),
}
"""No files, though the name has such a word in it."""
AMOUNTS = {"--enable-lora", "--fully-sharded-loras", "--lora-dtype"}


@pytest.mark.parametrize("engine", ENGINE_IDS)
def test_no_harmless_flag_sounds_otherwise(engine: EngineId) -> None:
    harmless = SPELLINGS[engine].harmless
    said = harmless.switches | harmless.values | harmless.lists
    said -= READ | AMOUNTS | {it for it in said if it.startswith(("--max-", "--default-"))}
    assert [it for it in sorted(said) for word in (*FILES, *CODE) if word in it] == []


@pytest.mark.parametrize("engine", ENGINE_IDS)
def test_a_flag_is_in_one_row(engine: EngineId) -> None:
    spelling = SPELLINGS[engine]
    harmless = spelling.harmless
    rows = (harmless.switches, harmless.values, harmless.lists, harmless.files, _knobs(spelling))
    assert sum(map(len, rows)) == len(frozenset().union(*rows))


def _knobs(spelling: Spelling) -> frozenset[str]:
    rows = [row for row in spelling.knobs.values() if isinstance(row, Says)]
    return frozenset(name for row in rows for word in row.words for name in word.flag.names)


def test_no_harmless_variable_chooses_code_or_files() -> None:
    shown = [
        name for name in HARMLESS_ENV for word in ("PATH", "FILE", "DIR", "HOME") if word in name
    ]
    assert shown == []
    assert not {"BASH_ENV", "LD_PRELOAD", "PYTHONSTARTUP", "LLAMA_ARG_LOG_FILE"} & HARMLESS_ENV


@given(st.sampled_from(ENGINE_IDS), st.lists(st.text(max_size=12), max_size=6))
def test_every_list_of_words_is_judged(engine: EngineId, args: list[str]) -> None:
    judged = judge(SPELLINGS[engine], args)
    known = SPELLINGS[engine]
    if judged.beyond is None:
        flags = [word.partition("=")[0] for word in args if word.startswith("-")]
        assert all(known.grammar.underscores or "_" not in flag for flag in flags)


@given(
    st.sampled_from(ENGINE_IDS),
    st.data(),
)
def test_a_dangerous_flag_is_found_wherever_it_hides(engine: EngineId, data: st.DataObject) -> None:
    harmless = SPELLINGS[engine].harmless
    fine = [*sorted(harmless.switches | harmless.values | harmless.lists), "1", "x", "/etc/x"]
    before = data.draw(st.lists(st.sampled_from(fine), max_size=5))
    after = data.draw(st.lists(st.sampled_from(fine), max_size=3))
    flag = data.draw(st.sampled_from(DANGEROUS[engine].split()))
    assert beyond(engine, *before, flag, *after) is not None
