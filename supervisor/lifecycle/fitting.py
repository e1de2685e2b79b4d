"""What an estimate of a launch's fit is made of, and what becomes of a launch that will not fit."""

from collections.abc import Mapping, Sequence

from msgspec import UNSET

from supervisor.contracts.config import DevicesConfig
from supervisor.contracts.device import DeviceSnapshot
from supervisor.contracts.failure import NoCapacity
from supervisor.contracts.host import DeviceId
from supervisor.contracts.instance import InstanceRecord
from supervisor.contracts.model import Fit, ModelFacts, Room, Serving, Unreadable
from supervisor.instances.books import Books, memory_is_hosts
from supervisor.lifecycle.order import Order
from supervisor.lifecycle.preflight import Problem
from supervisor.models.facts import Library


def rooms_of(
    order: Order,
    devices: tuple[DeviceId, ...],
    snapshot: DeviceSnapshot,
    records: Mapping[str, InstanceRecord],
) -> tuple[Room, ...]:
    """The memory of ``devices`` that is left for ``order``.

    Less than what is unused where others claim what they do not use yet, and no more than the
    launch itself claims of shared devices.
    """
    others = {name: it for name, it in records.items() if name != order.name}
    books = Books.of(snapshot.accelerators, others)
    rooms = []
    for name in devices:
        device = books.known.get(name)
        if device is None:
            rooms.append(Room(device=name, accelerator=None, total=None, free=None, hosts=False))
            continue
        free, hosts = books.candidate(device).free_bytes, memory_is_hosts(device)
        if _shares(order, hosts) and order.memory_bytes is not None:
            free = order.memory_bytes if free is None else min(free, order.memory_bytes)
        rooms.append(
            Room(
                device=name,
                accelerator=device.accelerator,
                total=device.memory_total_bytes,
                free=free,
                hosts=hosts,
            )
        )
    return tuple(rooms)


def read_models(
    library: Library, model: str, serving: Serving
) -> tuple[ModelFacts | Unreadable, int]:
    """The model, and the weights of those that are loaded beside it. Blocks."""
    beside = (library.facts(path) for path in serving.beside)
    return library.facts(model), sum(
        facts.weights_bytes for facts in beside if isinstance(facts, ModelFacts)
    )


def is_advisory(order: Order, rooms: Sequence[Room]) -> bool:
    """Shared devices without a claim: what others are going to use of them is not known."""
    return _shares(order, any(room.hosts for room in rooms)) and order.memory_bytes is None


def _shares(order: Order, hosts: bool) -> bool:
    return hosts if order.exclusive is None else not order.exclusive


def refuse_misfit(fit: Fit, devices: int, config: DevicesConfig) -> None:
    """Raises ``Problem`` where the config refuses what will not fit, and the estimate may decide:
    on shared devices without a claim it is only advice."""
    if config.fit != "refuse" or fit.fits is not False or fit.advisory:
        return
    raise Problem(
        NoCapacity(
            need=devices,
            free=0,
            need_bytes=UNSET if fit.need_bytes is None else fit.need_bytes,
            free_bytes=UNSET if fit.free_bytes is None else fit.free_bytes,
            detail=f"by estimate it will not fit, which [devices] in the config refuses: {fit.why}",
        )
    )
