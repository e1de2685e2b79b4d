"""Each engine's sheet of the golden matrix: what is asked, and where its own parser must put it.

The values are from the engines' manuals and from runs of their parsers, not from our tables.
"""

from collections.abc import Mapping

from supervisor.contracts.engine import EngineId
from tests.engines.matrix import Sheet
from tests.engines.sheets import exllamav3, llamacpp, mlx, sglang, vllm

SHEETS: Mapping[EngineId, Sheet] = {
    "vllm": vllm.SHEET,
    "sglang": sglang.SHEET,
    "llamacpp": llamacpp.SHEET,
    "mlx": mlx.SHEET,
    "exllamav3": exllamav3.SHEET,
}
