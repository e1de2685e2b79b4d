"""Every struct comes back from JSON as it went, and every event as one flat object."""

import importlib
import pkgutil
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from supervisor import contracts
from supervisor.contracts.event import Event, EventBody, Stamp
from supervisor.contracts.failure import LaunchFailure
from tests.contracts.strategies import values

MODULES = [
    importlib.import_module(f"{contracts.__name__}.{found.name}")
    for found in pkgutil.iter_modules(contracts.__path__)
]
STRUCTS = sorted(
    {
        thing
        for module in MODULES
        for thing in vars(module).values()
        if isinstance(thing, type)
        and issubclass(thing, msgspec.Struct)
        and thing.__module__ == module.__name__
        and msgspec.structs.fields(thing)
        and thing is not EventBody
    },
    key=lambda struct: struct.__qualname__,
)
EVENTS = get_args(Event)
brief = settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.__name__)
@brief
@given(data=st.data())
def test_json_gives_back_what_it_took(struct: type[msgspec.Struct], data: st.DataObject) -> None:
    value = data.draw(values(struct))
    encoded = msgspec.json.encode(value)
    decoded = msgspec.json.decode(encoded, type=struct)
    assert msgspec.json.encode(decoded) == encoded
    if "msgspec.Raw" not in repr(value):  # which knows no equality
        assert decoded == value


@pytest.mark.parametrize("union", [LaunchFailure, Event], ids=["failures", "events"])
@brief
@given(data=st.data())
def test_a_union_is_told_apart_by_its_kind(union: Any, data: st.DataObject) -> None:
    value = data.draw(values(union))
    decoded = msgspec.json.decode(msgspec.json.encode(value), type=union)
    assert type(decoded) is type(value)
    assert decoded == value


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.__name__)
def test_an_events_members_leave_room_for_the_journals(event: type[msgspec.Struct]) -> None:
    own = {field.encode_name for field in msgspec.structs.fields(event)}
    stamp = {field.encode_name for field in msgspec.structs.fields(Stamp)}
    assert not own & (stamp | {"kind"})


@brief
@given(stamp=values(Stamp), body=values(Event))
def test_a_flat_event_is_read_as_stamp_and_as_body(stamp: Stamp, body: Any) -> None:
    flat = msgspec.json.encode(msgspec.to_builtins(stamp) | msgspec.to_builtins(body))
    assert msgspec.json.decode(flat, type=Stamp) == stamp
    assert msgspec.json.decode(flat, type=Event) == body


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.__name__)
def test_a_member_that_may_be_absent_is_absent_by_default(struct: type[msgspec.Struct]) -> None:
    for field in msgspec.structs.fields(struct):
        optional = msgspec.UnsetType in get_args(field.type)
        assert (field.default is UNSET) == optional


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.__name__)
def test_contracts_are_values(struct: type[msgspec.Struct]) -> None:
    assert struct.__struct_config__.frozen
