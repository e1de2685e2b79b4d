"""Lines out of chunks of any size."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.rpc.framing import LineBuffer, LineTooLong


def _lines(buffer: LineBuffer) -> list[bytes]:
    taken = []
    while (line := buffer.take()) is not None:
        taken.append(line)
    return taken


@given(st.lists(st.binary(max_size=20).map(lambda b: b.replace(b"\n", b" "))), st.integers(1, 9))
def test_the_pieces_do_not_matter(lines: list[bytes], step: int) -> None:
    sent = b"".join(line + b"\n" for line in lines)
    buffer = LineBuffer()
    taken = []
    for at in range(0, len(sent), step):
        buffer.feed(sent[at : at + step])
        taken += _lines(buffer)
    assert taken == lines


def test_a_line_may_be_as_long_as_the_limit_and_no_longer() -> None:
    buffer = LineBuffer(limit=5)
    buffer.feed(b"12345\n123456\n")
    assert buffer.take() == b"12345"
    with pytest.raises(LineTooLong):
        buffer.take()


def test_an_unfinished_line_is_refused_once_it_is_too_long() -> None:
    buffer = LineBuffer(limit=5)
    buffer.feed(b"ok\n12345")
    assert _lines(buffer) == [b"ok"]
    buffer.feed(b"6")
    with pytest.raises(LineTooLong):
        buffer.take()
