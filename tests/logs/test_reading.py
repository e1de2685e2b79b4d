"""Logs as engines really write them."""

import json
from pathlib import Path

import msgspec
import pytest

from supervisor.logs.reading import read_from, tail, tail_text
from supervisor.logs.text import LINE_BYTES


def _same(text: str) -> str:
    return text


def _log(tmp_path: Path, data: bytes) -> str:
    path = tmp_path / "a.log"
    path.write_bytes(data)
    return str(path)


def test_what_is_masked_is_masked_before_a_long_line_is_cut(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"x" * (LINE_BYTES - 4) + b"s3cret" + b"y" * 100)
    [line] = tail(str(log), 1, lambda text: text.replace("s3cret", "***")).lines
    assert "s3c" not in line
    assert "x***" in line


def test_an_endless_line_progress_bars_and_then_ordinary_lines(tmp_path: Path) -> None:
    """LOG-1."""
    data = b"x" * 300_000 + b"\n" + b"".join(b"%d%%\r" % n for n in range(20_000))
    data += b"".join(b"INFO line %d of an engine that talks a lot\n" % n for n in range(50_000))
    found = tail(_log(tmp_path, data), 50, _same)
    assert len(found.lines) == 50
    assert found.lines[-1] == "INFO line 49999 of an engine that talks a lot"
    assert found.cursor == len(data)
    assert len(msgspec.json.encode(found.lines)) < 100_000


def test_carriage_returns_are_breaks(tmp_path: Path) -> None:
    found = tail(_log(tmp_path, b"a\rb\r\nc\n\nd\r"), 10, _same)
    assert found.lines == ("a", "b", "c", "", "d")


@pytest.mark.parametrize("size", [20_000, 300_000, 5 << 20])
def test_a_long_line_is_cut_and_says_so(tmp_path: Path, size: int) -> None:
    found = tail(_log(tmp_path, b"x" * size + b"\nend\n"), 5, _same)
    assert found.lines[-1] == "end"
    if size < 4 << 20:
        assert found.lines[0] == "x" * LINE_BYTES + f" [{size - LINE_BYTES} bytes cut]"


def test_a_log_of_one_endless_line_still_shows_something(tmp_path: Path) -> None:
    found = tail(_log(tmp_path, b"x" * (5 << 20)), 5, _same)
    assert len(found.lines) == 1
    assert found.cursor == 5 << 20


def test_fifty_long_lines_stay_under_100_kb(tmp_path: Path) -> None:
    data = b"".join(b"%d " % n + b'\\"' * 30_000 + b"\n" for n in range(60))
    found = tail(_log(tmp_path, data), 50, _same)
    assert 1 <= len(found.lines) < 50
    assert found.lines[-1].startswith("59 ")
    assert len(msgspec.json.encode(found.lines)) < 100_000


@pytest.mark.parametrize("lines", range(0, 120, 7))
def test_every_tail_of_a_hostile_log_is_valid_json(tmp_path: Path, lines: int) -> None:
    """LOG-2."""
    data = b"\x88\n\x00nul\n\xed\xa0\x80\n\x1b[31mred\x1b[0m \x1b]0;title\x07\x9b\n\x1b"
    data += b"".join(f"\n한국어 로그 줄 {n}".encode() for n in range(100))
    found = tail(_log(tmp_path, data), lines, _same)
    assert len(found.lines) == min(lines, 105)
    encoded = json.loads(msgspec.json.encode(found.lines))
    assert all(not any(ch < " " for ch in line) for line in encoded)
    if lines >= 105:
        assert found.lines[:5] == (
            "\ufffd",
            "\\x00nul",
            "\ufffd\ufffd\ufffd",
            "red \ufffd",
            "\\x1b",
        )
    if lines:
        assert found.lines[-1] == "한국어 로그 줄 99"


def test_a_cut_inside_a_character_costs_that_character_only(tmp_path: Path) -> None:
    found = tail(_log(tmp_path, "가".encode() * 10_000), 1, _same)
    assert found.lines[0].startswith("가" * (LINE_BYTES // 3) + " [")


def test_reading_on_waits_for_the_end_of_a_line(tmp_path: Path) -> None:
    path = _log(tmp_path, b"one\ntwo\r")
    first = read_from(path, 0, _same)
    assert (first.lines, first.cursor) == (("one",), 4)
    Path(path).write_bytes(b"one\ntwo\r\nthr")
    second = read_from(path, first.cursor, _same)
    assert (second.lines, second.cursor) == (("two",), 9)
    assert read_from(path, 9, _same).lines == ()
    assert read_from(path, 9, _same, unfinished=True).lines == ("thr",)


def test_reading_on_after_a_truncation_starts_over(tmp_path: Path) -> None:
    path = _log(tmp_path, b"new\n")
    assert read_from(path, 100, _same).lines == ("new",)
    assert read_from(str(tmp_path / "none"), 100, _same).cursor == 0


def test_reading_on_takes_a_large_log_in_steps(tmp_path: Path) -> None:
    data = b"".join(b"line %d\n" % n for n in range(100_000))
    path = _log(tmp_path, data)
    cursor = 0
    lines: list[str] = []
    while cursor < len(data):
        chunk = read_from(path, cursor, _same)
        assert chunk.cursor > cursor
        cursor = chunk.cursor
        lines += chunk.lines
    assert "".join(line + "\n" for line in lines) == data.decode()


HOSTILE = (
    b"first\n"
    + b"\xff\xfe caf\xc3 \xf0\x9f\x98\n\x00nul\n\x1b[31mred\x1b[0m\n"
    + "모델을 불러오는 중\n".encode() * 20
    + b"".join(b"loading %d%%\r" % n for n in range(30))
    + b"\r\nlast"
)


@pytest.mark.parametrize("size", range(1, 501))
def test_a_tail_of_any_size_starts_on_a_line_and_can_be_sent(tmp_path: Path, size: int) -> None:
    """LOG-2."""
    whole = tail_text(_log(tmp_path, HOSTILE), 1 << 20)
    found = tail_text(_log(tmp_path, HOSTILE), size)
    msgspec.json.encode(found)
    if size >= 8:
        assert found.endswith("last\n")
        assert whole.endswith("\n" + found) or whole == found
    assert len(found.encode()) <= 2 * size + 3


def test_a_long_line_is_read_on_in_pieces_and_loses_no_line_behind_it(tmp_path: Path) -> None:
    data = b"a\n" + b"x" * 300_000 + b"\nb\n" + b"y\n" * 200_000
    path, cursor, lines = _log(tmp_path, data), 0, list[str]()
    while (chunk := read_from(path, cursor)).cursor != cursor:
        lines += chunk.lines
        cursor = chunk.cursor
    assert [line for line in lines if "x" not in line] == ["a", "b", *["y"] * 200_000]
    assert 1 <= len([line for line in lines if "bytes cut]" in line]) <= 2


def test_a_line_that_ends_where_a_step_does_is_whole(tmp_path: Path) -> None:
    lines = [f"{number:07d}" for number in range(100_000)]
    path, cursor, found = _log(tmp_path, ("\n".join(lines) + "\n").encode()), 0, list[str]()
    while (chunk := read_from(path, cursor)).cursor != cursor:
        found += chunk.lines
        cursor = chunk.cursor
    assert found == lines
