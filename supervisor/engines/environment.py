"""The part of our own environment that an engine inherits: a list of names, and nothing else.

A list of what to drop would never be complete: masks of every vendor, ``NOTIFY_SOCKET`` and other
messages of systemd to us, ``PYTHON*`` and ``LD_*`` of our own interpreter, and the variables by
which engines are steered (a service discovery's ``VLLM_PORT`` crashes vLLM, ``LLAMA_ARG_PORT``
moves llama-server). What a launch needs beyond this it names itself, proxies and tokens included.
"""

import posixpath
from collections.abc import Mapping

INHERITED: frozenset[str] = frozenset(
    {
        # Who we are and where things lie.
        *("HOME", "LOGNAME", "PATH", "SHELL", "TEMP", "TMP", "TMPDIR", "TZ", "USER"),
        *("XDG_CACHE_HOME", "XDG_CONFIG_DIRS", "XDG_CONFIG_HOME", "XDG_DATA_DIRS"),
        *("XDG_DATA_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"),
        # The language of messages and file names; LC_* besides.
        *("LANG", "LANGUAGE"),
        # Which certificates this host trusts.
        *("CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE"),
        # Where this host keeps downloaded models and whence they come, but no token: that is a
        # launch's own, for everything inherited is inherited by every engine.
        *("HF_ENDPOINT", "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "HF_XET_CACHE"),
        *("HUGGINGFACE_HUB_CACHE", "LLAMA_CACHE"),
        # Where the compilers are that engines call for kernels (FlashInfer, exllamav3).
        *("CUDA_HOME", "CUDA_PATH", "ROCM_HOME", "ROCM_PATH"),
    }
)

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def base_environment(inherited: Mapping[str, str], program: str = "") -> dict[str, str]:
    """What every engine gets, before the plan's own variables.

    The folder of our own virtual environment leaves ``PATH``, and that of ``program``, where it is
    not on ``PATH`` anyway, comes first: an engine's helpers belong to the engine's installation.
    """
    env = {
        name: value
        for name, value in inherited.items()
        if name in INHERITED or name.startswith("LC_")
    }
    env["PATH"] = _path(env.get("PATH") or DEFAULT_PATH, inherited, program)
    env["PYTHONUNBUFFERED"] = "1"  # or a Python engine's last words are lost with its buffer
    return env


def _path(path: str, inherited: Mapping[str, str], program: str) -> str:
    venv = inherited.get("VIRTUAL_ENV")
    ours = f"{venv.rstrip('/')}/bin" if venv else None
    folders = [folder for folder in path.split(":") if folder.rstrip("/") != ours]
    home = posixpath.dirname(program)
    if home.startswith("/") and home not in folders:
        folders.insert(0, home)
    return ":".join(folders)
