"""The two kinds of struct that everything on the wire and on disk is made of."""

import msgspec


class Wire(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    forbid_unknown_fields=True,
):
    """A value that comes from a client or a config file: a member it does not know is an error."""


class Fact(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A value we wrote or a peer reports: members that a newer version added are tolerated."""
