"""What people read, and what a terminal must not obey."""

import argparse
from datetime import UTC, datetime

import pytest

from supervisor.cli.text import age, byte_count, duration_ms, printable, size, table, until


def test_nothing_that_a_terminal_obeys_gets_through() -> None:
    assert printable("a\x1b[2Jb\nc\x7f\x9b\u202e") == "a\\x1b[2Jb\\x0ac\\x7f\\x9b\\u202e"
    assert printable("ключ 가") == "ключ 가"


def test_tables_are_aligned() -> None:
    assert table(("A", "LONG"), [("xyz", "1"), ("\n", "")]) == "A     LONG\nxyz   1\n\\x0a"


@pytest.mark.parametrize(
    ("count", "shown"),
    [(None, "n/a"), (0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (140 << 30, "140.0 GiB")],
)
def test_bytes_read_well_and_unknown_is_not_zero(count: int | None, shown: str) -> None:
    assert size(count) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"), [(-5, "0s"), (119, "119s"), (120, "2m"), (7200, "2h"), (172_800, "2d")]
)
def test_ages(seconds: int, shown: str) -> None:
    then = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    now = datetime.fromtimestamp(then.timestamp() + seconds, UTC)
    assert age("2026-01-02T03:04:05.000Z", now) == shown


def test_an_age_that_cannot_be_known() -> None:
    assert age("yesterday") == "n/a"
    assert until("tomorrow") == "at tomorrow"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-5, "now"), (0, "now"), (11.6, "in 12 s"), (119, "in 119 s"), (300, "in 5 min"),
     (7200, "in 2 h")],
)  # fmt: skip
def test_moments_to_come(seconds: float, shown: str) -> None:
    now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    then = datetime.fromtimestamp(now.timestamp() + seconds, UTC)
    assert until(then.isoformat(), now) == shown


@pytest.mark.parametrize(
    ("text", "ms"), [("20s", 20_000), ("500ms", 500), ("2m", 120_000), ("1.5", 1500), ("0", 0)]
)
def test_durations(text: str, ms: int) -> None:
    assert duration_ms(text) == ms


@pytest.mark.parametrize(
    ("text", "count"), [("16GiB", 16 << 30), ("512M", 512 << 20), ("1.5k", 1536), ("7", 7)]
)
def test_sizes(text: str, count: int) -> None:
    assert byte_count(text) == count


def test_a_size_is_exact_however_large() -> None:
    assert byte_count("99999999999999999999999") == 99999999999999999999999
    assert byte_count("1.5KiB") == 1536


@pytest.mark.parametrize("text", ["", "soon", "-1s", "1d"])
def test_what_is_no_duration_and_no_size(text: str) -> None:
    for parse in (duration_ms, byte_count):
        with pytest.raises(argparse.ArgumentTypeError):
            parse(text)
