"""The tiny model in two files, as llama.cpp's gguf-split makes them."""

import struct
from pathlib import Path

from tests.models.ggufs import F32, Made
from tests.parts.tiny_gguf import _metadata, _padded, _tensors

UINT16, INT32 = 2, 5


def write(folder: Path) -> tuple[Path, Path]:
    """Both parts; the first has all that is said of the model, and half of the tensors."""
    tensors = list(_tensors().items())
    parts = []
    for number, some in enumerate((tensors[:10], tensors[10:])):
        metadata: dict[str, object] = {
            "split.no": struct.pack("<IH", UINT16, number),
            "split.count": struct.pack("<IH", UINT16, 2),
            "split.tensors.count": struct.pack("<Ii", INT32, len(tensors)),
        }
        infos, data = [], b""
        for name, (shape, values) in some:
            infos.append((name, shape, F32, len(data)))
            data += _padded(values.tobytes())
        if number == 0:
            metadata |= _metadata()
        path = folder / f"tiny-0000{number + 1}-of-00002.gguf"
        parts.append(Made(metadata=metadata, tensors=infos, data=data).write(path))
    return parts[0], parts[1]
