"""Whether a launch's model is there and of the kind that its engine reads. Blocks."""

import errno
import os

from supervisor.contracts.failure import SpawnFailed
from supervisor.lifecycle.order import Order
from supervisor.lifecycle.preflight import Problem
from supervisor.models.facts import is_projector
from supervisor.models.split import split_of

CONFIGS = ("config.json", "params.json")
"""One of them describes the model; the second is Mistral's own."""


def find_model(order: Order) -> str:
    """The path that the engine is to be given: as it was named, but for a part of a split GGUF,
    which stands for the first one. Links are kept, for the names of split parts are theirs.

    Raises ``Problem``. A launch with a command of its own says itself what it loads, so there only
    its being there is looked at.
    """
    path = order.model_path
    is_folder = _is_folder(path)
    if order.command:
        return path
    if order.engine == "llamacpp":
        if is_folder:
            raise _refused(f"{path} is a directory; llama-server reads one .gguf file{_hint(path)}")
        return _gguf(path)
    if not is_folder:
        if path.lower().endswith(".gguf") and not _asks_for_gguf(order):
            raise _refused(
                f"{path} is a GGUF file; {order.engine} reads a model's directory "
                "(config.json and its weights), and llamacpp serves GGUF files"
            )
        if not path.lower().endswith(".gguf"):
            raise _refused(
                f"{path} is a file; {order.engine} reads the directory that holds config.json"
            )
        return path
    if not any(os.path.exists(os.path.join(path, name)) for name in CONFIGS):
        raise _refused(f"{path} holds no config.json: it is no model's directory{_hint(path)}")
    return path


def _is_folder(path: str) -> bool:
    """Raises ``Problem`` where there is nothing, or nothing that may be looked at."""
    try:
        os.stat(path)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM):
            detail = f"the daemon may not look at the model {path}: {error.strerror}"
            raise Problem(SpawnFailed(detail=detail, reason="denied")) from None
        target = os.readlink(path) if os.path.islink(path) else None
        more = (
            "no such file" if target is None else f"it is a link to {target}, which leads nowhere"
        )
        raise _refused(f"no model at {path}: {more}") from None
    if not os.access(path, os.R_OK):
        detail = f"the daemon may not read the model {path}"
        raise Problem(SpawnFailed(detail=detail, reason="denied"))
    return os.path.isdir(path)


def _gguf(path: str) -> str:
    split = split_of(path)
    if split is not None:
        lacking = [part for part in split.paths if not os.path.exists(part)]
        if lacking:
            more = f" (and {len(lacking) - 1} more)" if len(lacking) > 1 else ""
            raise _refused(
                f"a part of the model is missing: {lacking[0]}{more}; "
                f"{path} is one of {len(split.paths)} that belong together"
            )
        path = split.first
    if is_projector(path):
        raise _refused(
            f"{path} is a projector, not a model: name the model, and pass this one with --mmproj"
        )
    return path


def _asks_for_gguf(order: Order) -> bool:
    """vLLM and SGLang can be made to read GGUF, by a plug-in or a flag that says so."""
    wanted = order.options.quantization == "gguf" or any("gguf" in it for it in order.extra_args)
    return wanted and order.engine in ("vllm", "sglang")


def _hint(folder: str) -> str:
    """What in a folder might have been meant."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.lower().endswith(".gguf"))
    except OSError:
        return ""
    names = [name for name in names if not name.lower().startswith("mmproj")]
    if not names:
        return ""
    return f"; it holds {names[0]}" + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def _refused(detail: str) -> Problem:
    return Problem(SpawnFailed(detail=detail, reason="model-missing"))
