"""Whether containers can be had on this host, and with its GPUs: what the profile says of it."""

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import anyio

from supervisor.contracts.host import Accelerator
from supervisor.launchers.docker.ask import ask
from supervisor.launchers.docker.engine import EngineDown, EngineRefused
from supervisor.patience import Overdue, Patience

FRESH_S = 5.0
ANSWER_S = 3.0
CDI_FOLDERS = (Path("/etc/cdi"), Path("/var/run/cdi"))
_NODES: dict[Accelerator, str] = {"rocm": "/dev/kfd", "xpu": "/dev/dri"}
"""Device files that a container is given, where the vendor needs no runtime of its own."""

_asking = Patience("asking whether there is a container engine", 2)


class Presence:
    """Asks the container engine, at most once in a few seconds, whoever wants to know."""

    def __init__(self, socket: str, cdi: Iterable[Path] = CDI_FOLDERS) -> None:
        self._socket = socket
        self._cdi = tuple(cdi)
        self._asking = anyio.Lock()
        self._latest: tuple[float, Any] | None = None

    async def look(self, accelerator: Accelerator) -> tuple[bool, bool]:
        """Whether the engine's API answers, and whether its containers can reach such devices."""
        info = await self._info()
        return info is not None, info is not None and self._reaches(info, accelerator)

    async def _info(self) -> Any:
        """``None`` where nobody answers."""
        async with self._asking:
            now = anyio.current_time()
            if self._latest is None or now - self._latest[0] > FRESH_S:
                self._latest = now, await self._answer()
            return self._latest[1]

    async def _answer(self) -> Any:
        try:
            return await _asking.run(self._ask, within_s=ANSWER_S)
        except Overdue:
            return None

    def _ask(self) -> Any:
        if not os.path.exists(self._socket):
            return None
        try:
            info = ask(self._socket, "/info")
        except (EngineDown, EngineRefused):
            return None
        return info if isinstance(info, dict) else {}

    def _reaches(self, info: Any, accelerator: Accelerator) -> bool:
        """Only what proves it: NVIDIA's runtime or a CDI specification, the vendors' device files.

        Never on macOS, where containers live in a virtual machine.
        """
        if sys.platform == "darwin":
            return False
        if accelerator == "cuda":
            return "nvidia" in (info.get("Runtimes") or {}) or any(map(_names_nvidia, self._cdi))
        node = _NODES.get(accelerator)
        return node is not None and os.path.exists(node)


def _names_nvidia(folder: Path) -> bool:
    try:
        files = [file for file in folder.iterdir() if file.suffix in (".json", ".yaml", ".yml")]
        return any("nvidia.com/gpu" in file.read_text(errors="replace") for file in files)
    except OSError:
        return False
