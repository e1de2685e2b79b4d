"""What is known of a model before it is loaded, how it will be served, and whether that fits."""

from typing import Literal

from supervisor.contracts._base import Fact
from supervisor.contracts.host import Accelerator, DeviceId

ModelFormat = Literal["gguf", "safetensors"]


class CacheLayer(Fact, frozen=True, kw_only=True):
    """What one kind of layer keeps of each token. Layers that keep nothing are not listed."""

    count: int
    keys: int
    """Elements a token: heads times head length; the whole compressed vector of an MLA layer."""
    values: int
    window: int | None = None
    """Tokens that it looks back; ``None`` for all of them."""


class ModelFacts(Fact, frozen=True, kw_only=True):
    """Read from a model's own files. ``None`` where they do not say."""

    format: ModelFormat
    architecture: str
    weights_bytes: int
    """Of all tensors in all files, as they lie on disk."""
    layers: tuple[CacheLayer, ...]
    context_length: int | None = None
    """What it was trained for."""
    embedding_length: int | None = None
    feed_forward_length: int | None = None
    heads: int | None = None
    """Of attention, the most that a layer has."""
    vocabulary: int | None = None
    experts: int | None = None
    dtype: str | None = None
    """Of the weights, as a safetensors model's config has it; a cache of type auto follows it."""
    projector: bool = False
    """Turns images or sound into embeddings, and is no model to serve by itself."""
    recurrent: bool = False
    """Has layers with a state of fixed size, which is not counted."""
    files: tuple[str, ...] = ()


class Unreadable(Fact, frozen=True):
    """Why a model's facts could not be read, in words."""

    reason: str


class Serving(Fact, frozen=True, kw_only=True):
    """What an engine was told about memory: read from the words of its plan."""

    context: int | None = None
    """Tokens, in all of its slots; ``None`` for the model's own."""
    slots: int = 1
    pooled: bool = True
    """All slots draw on one cache; otherwise each has an equal share."""
    key_type: str = "auto"
    value_type: str = "auto"
    micro_batch: int = 512
    """Tokens computed at once."""
    fraction: float | None = None
    """Of a device's memory, that the engine takes for itself."""
    cache_bytes: int | None = None
    """A cache of so many bytes, whatever the context."""
    flash: bool = True
    """Attention is computed in pieces; without it all scores of a micro-batch are held at once."""
    whole_window: bool = False
    """Layers with a window keep all tokens all the same."""
    device_layers: int | None = None
    """So many layers go to the devices, the rest stays in host memory; ``None`` for all."""
    keeps_back: bool = False
    """Some of the weights are told to stay in host memory."""
    shrinks: bool = False
    """The engine takes less context by itself where memory is short."""
    splits: Literal["layers", "copies"] = "copies"
    """Several devices: each has some of the layers, or each a part of everything in step."""
    beside: tuple[str, ...] = ()
    """Files of further models that are loaded as well."""


class Room(Fact, frozen=True, kw_only=True):
    """The memory of one leased device."""

    device: DeviceId
    accelerator: Accelerator | None
    """``None`` for a device that is not there."""
    total: int | None
    free: int | None
    """What nobody uses or claims; ``None`` where nothing tells."""
    hosts: bool
    """It is the host's own memory, so several such devices have it together."""

    @property
    def on_cpu(self) -> bool:
        return self.accelerator == "cpu"


class Fit(Fact, frozen=True, kw_only=True):
    """An estimate, in bytes over all leased devices. Null: it could not be had."""

    fits: bool | None
    weights_bytes: int | None
    kv_bytes: int | None
    """The cache, for the context and the number of requests at once."""
    overhead_bytes: int | None
    need_bytes: int | None
    free_bytes: int | None
    why: str
    """The verdict in a sentence, with what it rests on."""
    advisory: bool = False
    """On shared devices without a ``memoryBytes`` claim nobody is refused for it."""
