"""Devices that a launch names by the beginning of their id, as people type them."""

import dataclasses
from collections.abc import Collection

from msgspec.structs import replace

from supervisor.contracts.host import DeviceId
from supervisor.lifecycle.errors import InvalidLaunch
from supervisor.lifecycle.order import Order

LEAST = 6
"""``GPU-`` and two digits; less would be met by chance."""


def spelled_out(order: Order, present: Collection[DeviceId]) -> Order:
    """The order with whole ids: engines and records see no other.

    What begins no id stays as it is, and is refused later as a device that is not there. Raises
    ``InvalidLaunch`` where several devices are meant, or one is named twice.
    """
    if not order.devices:
        return order
    devices = tuple(_whole(named, present) for named in order.devices)
    if len(set(devices)) < len(devices):
        raise InvalidLaunch(f"devices names one device twice: {', '.join(devices)}")
    params = replace(order.params, devices=devices)
    return dataclasses.replace(order, devices=devices, params=params)


def _whole(named: DeviceId, present: Collection[DeviceId]) -> DeviceId:
    if named in present or len(named) < LEAST:
        return named
    meant = sorted(device for device in present if device.startswith(named))
    if len(meant) > 1:
        raise InvalidLaunch(f"device {named!r} is ambiguous: {', '.join(meant)}")
    return meant[0] if meant else named
