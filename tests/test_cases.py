"""The table of cases says where each one is tested, and there it is named."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (TESTS.parent / "docs" / "cases.md").read_text().splitlines()
    if re.match(r"\| [A-Z]+-\d+ \|", line)
]


def test_each_case_has_one_row() -> None:
    names = [row[0] for row in ROWS]
    assert names
    assert len(names) == len(set(names))
    assert all(len(row) == 4 for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_a_case_is_named_where_it_is_tested(row: list[str]) -> None:
    case, _, tests, otherwise = row
    files = re.findall(r"`([^`]+)`", tests)
    assert files or otherwise
    for file in files:
        assert re.search(rf"\b{case}\b", (TESTS / file).read_text()), file
