"""How NVML is called: what its codes mean, and which of them concern one field, one device or all.

Codes are from NVIDIA's own binding (``pynvml`` of nvidia-ml-py). Only the probe child uses this.
"""

import ctypes
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from supervisor.devices.traces import NVML, NVML_FOLDERS

NOT_SUPPORTED, FUNCTION_NOT_FOUND, ARGUMENT_VERSION = 3, 13, 25
_UNINITIALIZED, _DRIVER_NOT_LOADED, _LIBRARY_NOT_FOUND, _VERSION_MISMATCH = 1, 9, 12, 18
_LOST = {15: "is lost", 16: "has to be reset", 28: "was not found"}
_DRIVER_GONE = frozenset({_UNINITIALIZED, _DRIVER_NOT_LOADED, _VERSION_MISMATCH})
ABSENT = frozenset({_DRIVER_NOT_LOADED, _LIBRARY_NOT_FOUND})
"""There is no driver of NVIDIA's here."""


class LostError(Exception):
    """This device does not work any more."""


def called(nvml: ModuleType, function: Callable[..., Any], *arguments: Any) -> Any:
    """Raises ``LostError`` for a device that is, and ``NVMLError`` for all else."""
    try:
        return function(*arguments)
    except nvml.NVMLError as error:
        if error.value in _LOST:
            raise LostError(f"{_LOST[error.value]} ({error})") from None
        raise


def value(nvml: ModuleType, function: Callable[..., Any], *arguments: Any) -> Any:
    """One field. ``None`` where it cannot be had, unless the device or the driver is gone."""
    try:
        return called(nvml, function, *arguments)
    except nvml.NVMLError as error:
        if error.value in _DRIVER_GONE:
            raise
        return None
    except UnicodeDecodeError:
        return None


def must(nvml: ModuleType, function: Callable[..., Any], *arguments: Any) -> Any:
    """What a device cannot be shown without."""
    try:
        return called(nvml, function, *arguments)
    except nvml.NVMLError as error:
        if error.value in _DRIVER_GONE:
            raise
        raise LostError(f"cannot be read ({error})") from None


def preload() -> None:
    """Load the library from where the loader does not look; ``pynvml`` then finds it by name."""
    for place in _places():
        try:
            ctypes.CDLL(place)
            return
        except OSError:
            continue


def _places() -> Iterator[str]:
    yield NVML
    yield from (f"{folder}/{NVML}" for folder in NVML_FOLDERS)
