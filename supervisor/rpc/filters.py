"""Which events a reader wants: of these kinds, of these instances."""

from collections.abc import Callable

from supervisor.bus import Published
from supervisor.contracts import rpc
from supervisor.contracts.event import Event
from supervisor.contracts.rpc import EventFilter
from supervisor.rpc.faults import Fault

EVENT_KINDS = frozenset(body.__struct_config__.tag for body in Event.__args__)

Wanted = Callable[[Published], bool]


def wanted(filter_: EventFilter) -> Wanted:
    """Left out, or empty, a member of the filter wants all there are. Raises ``Fault``."""
    kinds, instances = frozenset(filter_.kinds or ()), frozenset(filter_.instances or ())
    if unknown := kinds - EVENT_KINDS:
        raise Fault(
            rpc.INVALID_PARAMS, f"no such event kind: {', '.join(sorted(unknown))} - at `$.kinds`"
        )

    def wants(published: Published) -> bool:
        event = published.event
        return (not kinds or event.__struct_config__.tag in kinds) and (
            not instances or event.instance in instances
        )

    return wants
