"""A hypothesis strategy for every contract type, made from the type itself."""

import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from hypothesis import strategies as st
from msgspec import UNSET, UnsetType

from supervisor.contracts.engine import EngineSupport

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_INTEGERS = (-(1 << 63), (1 << 63) - 1)

SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXT,
    int: st.integers(*_INTEGERS),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    type(None): st.none(),
    UnsetType: st.just(UNSET),
    msgspec.Raw: st.sampled_from([msgspec.Raw(b"null"), msgspec.Raw(b'{"a":[1]}')]),
    EngineSupport: st.one_of(
        st.builds(EngineSupport.unsupported, TEXT),
        st.builds(lambda kinds: EngineSupport.supported(*kinds), st.just(("docker", "process"))),
    ),
}


def values(wanted: Any) -> st.SearchStrategy[Any]:
    """Values of a type, as far as contracts use types."""
    if wanted in SCALARS:
        return SCALARS[wanted]
    if isinstance(wanted, type) and issubclass(wanted, msgspec.Struct):
        return st.deferred(lambda: _structs(wanted))
    origin, arguments = get_origin(wanted), get_args(wanted)
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (Union, types.UnionType):
        return st.one_of(*map(values, arguments))
    if origin is Annotated:
        return _bounded(arguments[0], arguments[1:])
    if origin is tuple:
        return st.lists(values(arguments[0]), max_size=2).map(tuple)
    if origin is dict:
        return st.dictionaries(values(arguments[0]), values(arguments[1]), max_size=2)
    raise NotImplementedError(wanted)


def _structs(wanted: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    return st.builds(
        wanted, **{field.name: values(field.type) for field in msgspec.structs.fields(wanted)}
    )


def _bounded(base: Any, metas: tuple[Any, ...]) -> st.SearchStrategy[Any]:
    low, high = _INTEGERS
    for meta in metas:
        if base is not int or not isinstance(meta, msgspec.Meta):
            return values(base)
        low = low if meta.ge is None else int(meta.ge)
        low = low if meta.gt is None else int(meta.gt) + 1
        high = high if meta.le is None else int(meta.le)
        high = high if meta.lt is None else int(meta.lt) - 1
    return st.integers(low, high)
