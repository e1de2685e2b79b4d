"""How each device stands: free, held, foreign or lost. Together they are all that there is."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from supervisor.contracts.device import AcceleratorInfo, DeviceStanding
from supervisor.contracts.host import DeviceId
from supervisor.contracts.instance import InstanceRecord
from supervisor.instances.books import Books
from supervisor.instances.lease import Foreign


def standings(
    offered: Sequence[AcceleratorInfo],
    records: Mapping[str, InstanceRecord],
    *,
    withheld: Mapping[DeviceId, object] = MappingProxyType({}),
    foreign: Foreign = MappingProxyType({}),
) -> dict[DeviceId, DeviceStanding]:
    """Every device that is there or claimed, in the probes' order. Exactly one word each.

    What is held is held however it is: by records, by one that cannot be read, through its whole or
    a slice of it. Lost ones are held as well, for a lease stays with its record; the word that
    explains more comes first.
    """
    books = Books.of(offered, records)
    found: dict[DeviceId, DeviceStanding] = {}
    for device in books.known:
        family = (device, *books.relatives(device))
        slices = [it for it, kin in books.relatives(device).items() if kin == "slice"]
        if any(books.held.get(it) or it in withheld for it in family):
            found[device] = "held"
        elif any(foreign.get(it) for it in (device, *slices)):
            found[device] = "foreign"
        else:
            found[device] = "free"
    gone = (it for it in (*books.held, *withheld) if it not in found)
    return found | dict.fromkeys(gone, "lost")
