"""The OpenRPC document: generated from the very types that requests are decoded into."""

from typing import Any

import msgspec

from supervisor.contracts import rpc
from supervisor.contracts.event import Event, Stamp
from supervisor.contracts.failure import LaunchFailure
from supervisor.contracts.rpc import EventNotice, ExpiredCursor, LogNotice, SubscriptionEnded
from supervisor.rpc.method import Method, Table

INTERFACE_VERSION = "1.0.0"
"""Of the methods and their types, not of the program: it rises when they change."""

_REF = "#/components/schemas/{name}"

_ERRORS: tuple[tuple[int, str], ...] = (
    (rpc.PARSE_ERROR, "not JSON"),
    (rpc.INVALID_REQUEST, "not a request"),
    (rpc.METHOD_NOT_FOUND, "no such method"),
    (rpc.INVALID_PARAMS, "invalid params"),
    (rpc.INTERNAL_ERROR, "internal error"),
    (rpc.FORBIDDEN, "forbidden"),
    (rpc.UNAVAILABLE, "unavailable"),
    (rpc.OVERLOADED, "overloaded"),
    (rpc.CURSOR_EXPIRED, "cursor expired"),
    (rpc.TOO_LARGE, "too large"),
    (1001, "launch failed: unsupported"),
    (1002, "launch failed: already-running"),
    (1003, "launch failed: no-capacity"),
    (1004, "launch failed: install-failed"),
    (1005, "launch failed: spawn-failed"),
    (1006, "launch failed: exited-early"),
    (1007, "launch failed: unhealthy-timeout"),
    (1008, "launch failed: cancelled"),
    (rpc.NO_SUCH_INSTANCE, "no such instance"),
    (rpc.NOT_OURS, "not ours"),
    (rpc.INVALID_LAUNCH, "invalid launch"),
    (rpc.NO_SUCH_RECIPE, "no such recipe"),
    (rpc.PINNED, "pinned"),
    (rpc.CANNOT_TELL, "cannot tell"),
    (rpc.STOP_INCOMPLETE, "stop incomplete"),
    (rpc.WAIT_TIMED_OUT, "wait timed out"),
    (rpc.STILL_ALIVE, "still alive"),
    (rpc.NOT_DONE, "not done: something was in the way, and all stayed as it was"),
    (rpc.HAS_ENDED, "it has ended, and will not be what was waited for"),
)

_NOTIFICATIONS = {
    "event": EventNotice,
    "log": LogNotice,
    "subscription.ended": SubscriptionEnded,
}


def document(table: Table) -> bytes:
    """The document as JSON: the same bytes for the same types."""
    methods = list(table.values())
    documented = [
        *(method.params for method in methods),
        *(method.result for method in methods),
        *_NOTIFICATIONS.values(),
        ExpiredCursor,
        Stamp,
        LaunchFailure,
        Event,
    ]
    shapes, components = msgspec.json.schema_components(documented, ref_template=_REF)
    failure, event = shapes[-2:]
    tree = {
        "openrpc": "1.3.2",
        "info": {"title": "engine-supervisor", "version": INTERFACE_VERSION},
        "methods": [
            _method(method, params, result, components)
            for method, params, result in zip(methods, shapes, shapes[len(methods) :], strict=False)
        ],
        "x-notifications": [
            {"name": name, "params": {"$ref": _REF.format(name=kind.__name__)}}
            for name, kind in _NOTIFICATIONS.items()
        ],
        "components": {
            "schemas": {
                **components,
                "LaunchFailure": failure,
                "Event": {"allOf": [{"$ref": _REF.format(name="Stamp")}, event]},
            },
            "errors": {str(code): {"code": code, "message": message} for code, message in _ERRORS},
        },
    }
    return msgspec.json.encode(tree, order="deterministic")


def _method(method: Method, params: Any, result: Any, components: dict[str, Any]) -> dict[str, Any]:
    shape = components[params["$ref"].rpartition("/")[2]]
    required = set(shape.get("required", ()))
    members = sorted(shape["properties"].items(), key=lambda item: item[0] not in required)
    return {
        "name": method.name,
        "summary": method.summary,
        "paramStructure": "by-name",
        "params": [
            {"name": name, "required": name in required, "schema": schema}
            for name, schema in members
        ],
        "result": {"name": "result", "schema": result},
        "x-role": method.role.name.lower(),
    }
