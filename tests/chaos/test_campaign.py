"""The short form of `make chaos`."""

from pathlib import Path

from tests.chaos.campaign import campaign
from tests.chaos.nursery import Nursery


def test_random_deaths_under_traffic(tmp_path: Path, nursery: Nursery) -> None:
    outcome = campaign(tmp_path, nursery, kills=20, engines=8, seed=20)
    assert outcome.good, (outcome.findings, outcome.stderr)
    assert outcome.kills >= 15
    assert outcome.witnessed["start"] >= 15
