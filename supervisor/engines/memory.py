"""What an engine was told about memory, read from the words of its plan.

A plan's argv holds everything in one place, whoever said it: the knobs, the extra arguments, a
command of the launch's own. Flags and defaults are those of vLLM 0.33, SGLang 0.5.23, llama-server
b11434, mlx-lm 0.32 and TabbyAPI of October 2026.
"""

import re
from collections.abc import Callable, Mapping, Sequence

from supervisor.contracts.engine import EngineId
from supervisor.contracts.model import Serving
from supervisor.engines.words import flag_values

AUTO_SLOTS = 4
"""Of llama-server, when it is not told how many (measured); they share one cache."""
LAYERS = ("-ngl", "--gpu-layers", "--n-gpu-layers", "LLAMA_ARG_N_GPU_LAYERS")
VLLM_FRACTION = 0.92
VLLM_BATCHED_TOKENS = 8192

_AMOUNT = re.compile(r"(?i)([0-9]{1,20})(?:\.([0-9]{1,20}))?\s*([kmgt]?)(?:i?b)?")
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_LARGEST = 1 << 62


class _Said:
    """The last word for each flag, which is the one that counts, or else its variable."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        self._flags = dict(flag_values(argv))
        self._env = env

    def text(self, *names: str) -> str | None:
        """``names`` are flags, and variables in capitals."""
        flag = next((self._flags[name] for name in names if name in self._flags), None)
        return flag or next((self._env[name] for name in names if self._env.get(name)), None)

    def number(self, *names: str) -> int | None:
        """Above zero, else ``None``: engines mean "automatic" by 0 and -1."""
        amount = _amount(self.text(*names))
        return amount if amount and amount > 0 else None

    def fraction(self, *names: str) -> float | None:
        try:
            value = float(self.text(*names) or "")
        except ValueError:
            return None
        return value if 0 < value <= 1 else None

    def has(self, *names: str) -> bool:
        return any(name in self._flags for name in names)

    def switch(self, on: Sequence[str], off: Sequence[str], variable: str) -> bool | None:
        """A pair of switches; the later one of them counts."""
        for name in reversed(self._flags):
            if name in on or name in off:
                return name in on
        told = self._env.get(variable, "").lower()
        return told in ("1", "on", "true", "enabled") if told else None


def serving_of(engine: EngineId, argv: Sequence[str], env: Mapping[str, str]) -> Serving:
    """Total: what makes no sense is taken for unsaid, as the engine will say itself."""
    return _READERS[engine](_Said(argv, env))


def _llamacpp(said: _Said) -> Serving:
    told = said.text("-c", "--ctx-size", "LLAMA_ARG_CTX_SIZE")
    context = said.number("-c", "--ctx-size", "LLAMA_ARG_CTX_SIZE")
    slots = said.number("-np", "--parallel", "LLAMA_ARG_N_PARALLEL")
    pooled = said.switch(
        ("-kvu", "--kv-unified"), ("-no-kvu", "--no-kv-unified"), "LLAMA_ARG_KV_UNIFIED"
    )
    each = said.number("--kv-unified-per-slot", "LLAMA_ARG_KV_UNIFIED_PER_SLOT")
    many = slots or AUTO_SLOTS
    if each and told is None:
        context = each * many
    batch = said.number("-b", "--batch-size", "LLAMA_ARG_BATCH") or 2048
    fitted = said.text("-fit", "--fit", "LLAMA_ARG_FIT") or "on"
    further = (("-mm", "--mmproj"), ("-md", "--model-draft", "--spec-draft-model"), ("--lora",))
    return Serving(
        context=context,
        slots=many,
        pooled=slots is None if pooled is None else pooled,
        key_type=said.text("-ctk", "--cache-type-k", "LLAMA_ARG_CACHE_TYPE_K") or "f16",
        value_type=said.text("-ctv", "--cache-type-v", "LLAMA_ARG_CACHE_TYPE_V") or "f16",
        micro_batch=min(batch, said.number("-ub", "--ubatch-size", "LLAMA_ARG_UBATCH") or 512),
        flash=(said.text("-fa", "--flash-attn", "LLAMA_ARG_FLASH_ATTN") or "auto").lower()
        not in ("off", "0", "false", "disabled"),
        whole_window=said.has("--swa-full"),
        device_layers=_layers(said.text(*LAYERS)),
        keeps_back=said.has("-ot", "--override-tensor", "-cmoe", "--cpu-moe", "-ncmoe")
        or said.has("--n-cpu-moe"),
        shrinks=told is None and not each and fitted.lower() not in ("off", "0", "false"),
        splits="layers",
        beside=tuple(path for names in further if (path := said.text(*names))),
    )


def _layers(text: str | None) -> int | None:
    """``auto`` and ``all`` are words for all that fit."""
    return int(text) if text is not None and text.isascii() and text.isdecimal() else None


def _vllm(said: _Said) -> Serving:
    space = _amount(said.text("VLLM_CPU_KVCACHE_SPACE"))  # in GiB
    dtype = said.text("--kv-cache-dtype") or "auto"
    told = said.text("--kv-cache-memory-bytes")
    return Serving(
        context=said.number("--max-model-len"),
        slots=said.number("--max-num-seqs") or 1,
        key_type=dtype,
        value_type=dtype,
        micro_batch=said.number("--max-num-batched-tokens") or VLLM_BATCHED_TOKENS,
        fraction=said.fraction("--gpu-memory-utilization", "--device-memory-utilization")
        or VLLM_FRACTION,
        cache_bytes=_amount(told) if told else (space << 30 if space else None),
        shrinks=(said.text("--max-model-len") or "").lower() in ("auto", "-1"),
    )


def _sglang(said: _Said) -> Serving:
    dtype = said.text("--kv-cache-dtype") or "auto"
    return Serving(
        context=said.number("--context-length"),
        slots=said.number("--max-running-requests") or 1,
        key_type=dtype,
        value_type=dtype,
        micro_batch=said.number("--chunked-prefill-size") or 8192,
        fraction=said.fraction("--mem-fraction-static"),
    )


def _mlx(said: _Said) -> Serving:
    bits = said.number("--kv-bits")
    dtype = f"int{bits}" if bits in (4, 8) else "auto"
    further = (("--adapter-path",), ("--draft-model",))
    return Serving(
        key_type=dtype,
        value_type=dtype,
        micro_batch=said.number("--prefill-step-size") or 2048,
        beside=tuple(
            path for names in further if (path := said.text(*names)) and path.startswith("/")
        ),
    )


def _exllamav3(said: _Said) -> Serving:
    """TabbyAPI; ``--cache-mode`` is FP16, or the bits of keys and values, such as 8,6."""
    mode = said.text("--cache-mode", "TABBY_MODEL_CACHE_MODE") or "FP16"
    keys, _, values = mode.lower().partition(",")
    length = said.number("--max-seq-len", "TABBY_MODEL_MAX_SEQ_LEN")
    return Serving(
        context=said.number("--cache-size", "TABBY_MODEL_CACHE_SIZE") or length,
        key_type=_bits(keys),
        value_type=_bits(values or keys),
        micro_batch=said.number("--chunk-size") or 2048,
        splits="layers",
    )


def _bits(mode: str) -> str:
    digits = mode.strip().removeprefix("q")
    return f"int{digits}" if digits.isdecimal() and 2 <= int(digits) <= 8 else "float16"


_READERS: Mapping[EngineId, Callable[[_Said], Serving]] = {
    "llamacpp": _llamacpp,
    "vllm": _vllm,
    "sglang": _sglang,
    "mlx": _mlx,
    "exllamav3": _exllamav3,
}


def _amount(text: str | None) -> int | None:
    """A number as engines write it: ``4096``; in vLLM ``32k`` are thousands, ``32K`` times 1024."""
    match = _AMOUNT.fullmatch((text or "").strip())
    if match is None:
        return None
    whole, part, unit = match[1], match[2] or "", match[3]
    scale = (1000 if unit.islower() else 1024) ** _POWERS[unit.lower()]
    amount = int(whole + part) * scale // 10 ** len(part)
    return amount if amount <= _LARGEST else None
