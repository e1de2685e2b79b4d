"""AMD's own library, where it is installed: it fills what sysfs leaves open, and nothing else.

Importing it loads a shared object and may raise anything (``KeyError`` where that is missing); each
of its calls may too. None of that may cost a reading that sysfs gave.
"""

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from supervisor.contracts.device import AcceleratorInfo


class Smi:
    """The library, opened once, or the fact that it is not to be had."""

    def __init__(self, library: Any | None, handles: Mapping[str, Any]) -> None:
        self._library = library
        self._handles = handles

    @classmethod
    def opened(cls) -> "Smi":
        try:
            library = importlib.import_module("amdsmi")
            library.amdsmi_init()
            handles = {
                str(library.amdsmi_get_gpu_device_bdf(handle)).lower(): handle
                for handle in library.amdsmi_get_processor_handles()
            }
        except Exception:  # it may raise anything, and is not needed
            return cls(None, {})
        return cls(library, handles)

    def completed(self, address: str, device: AcceleratorInfo) -> AcceleratorInfo:
        """The device with those of its empty fields filled that the library knows."""
        handle = self._handles.get(address)
        if self._library is None or handle is None:
            return device
        if device.name.startswith("AMD GPU"):
            name = self._word("amdsmi_get_gpu_asic_info", handle, "market_name")
            device = replace(device, name=name or device.name)
        if device.driver is None:
            driver = self._word("amdsmi_get_gpu_driver_info", handle, "driver_version")
            device = replace(device, driver=driver)
        return device

    def _word(self, function: str, handle: Any, key: str) -> str | None:
        try:
            call: Callable[[Any], Mapping[str, Any]] = getattr(self._library, function)
            value = call(handle).get(key)
        except Exception:  # as above
            return None
        return value if isinstance(value, str) and value not in ("", "N/A") else None
