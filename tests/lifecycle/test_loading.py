"""What an engine's log does for it while it starts: phases are told, and a deadline moves."""

import time
from pathlib import Path

import anyio
import pytest
from msgspec import UNSET
from msgspec.structs import replace

from supervisor.contracts.config import Config, DevicesConfig, LogsConfig
from supervisor.contracts.event import Adopted, Phase, Ready, Warning_
from supervisor.contracts.failure import UnhealthyTimeout
from supervisor.engines.phases import PhaseSeen
from supervisor.lifecycle import loading
from supervisor.lifecycle.deadline import Deadline, cap_ms
from supervisor.lifecycle.errors import InvalidLaunch
from supervisor.lifecycle.loading import Signs, sift
from tests.lifecycle.house import CARDS, POOL, Home, opened, pid_of

pytestmark = pytest.mark.anyio
S = 1_000_000_000


def test_a_deadline_moves_with_progress_and_ends_at_its_cap() -> None:
    deadline = Deadline(10 * S, stall_ns=5 * S, cap_ns=30 * S)
    deadline.progress(1 * S)
    assert deadline.ends_ns == 10 * S
    deadline.progress(9 * S)
    assert deadline.ends_ns == 14 * S
    deadline.progress(8 * S)
    assert deadline.ends_ns == 14 * S
    deadline.progress(28 * S)
    assert deadline.ends_ns == 30 * S


def test_without_stall_it_stays() -> None:
    deadline = Deadline(10 * S)
    deadline.progress(9 * S)
    assert deadline.ends_ns == 10 * S


def test_the_cap_is_never_before_the_deadline() -> None:
    assert (cap_ms(1000, None), cap_ms(1000, 500), cap_ms(1000, 9000)) == (4000, 1000, 9000)


def test_only_news_is_a_sign_of_life() -> None:
    of = sift("llamacpp")
    assert of(("stub: GET /health HTTP/1.1", "", "  ")) == Signs(False, ())
    assert of(("anything",)) == Signs(True, ())
    shared = "load_tensors: loading model tensors 2% | 2/100stub: GET /health HTTP/1.1"
    assert of((shared,)).alive
    lines = ["load_model: loading model 'x'", "load_tensors: loading model tensors 7%"]
    lines += ["init: llama threadpool init, n_threads = 2"]
    phases = (PhaseSeen("loading-weights", "7 %"), PhaseSeen("warming-up"))
    assert of(tuple(lines)) == Signs(True, phases)


async def test_an_engine_that_makes_progress_gets_ready_far_behind_its_deadline(
    home: Home,
) -> None:
    binary = home.stub(load=2.5, loading="refuse", drip=0.2)
    view = await home.launch(binary=binary, ready_deadline_ms=900, stall_ms=1000)
    assert view.state == "ready"
    assert home.of(Ready)[0].waited_ms >= 2400
    assert {phase.phase for phase in home.of(Phase)} == {"loading-weights"}
    details = [phase.detail for phase in home.of(Phase)]
    assert 1 <= len(details) <= 4
    assert all(detail is not UNSET and "%" in detail for detail in details)
    await home.stop()


async def test_one_that_stalls_is_given_up_once_it_did(home: Home) -> None:
    binary = home.stub(load=60, drip=0.1, drip_for=1.2)
    failure = await home.refused(binary=binary, ready_deadline_ms=500, stall_ms=1000)
    assert isinstance(failure, UnhealthyTimeout)
    # Real time, from the start to the verdict; our own probes in its log were no progress.
    assert 2000 <= failure.waited_ms < 4000


async def test_one_that_goes_on_for_ever_meets_the_cap(home: Home) -> None:
    binary = home.stub(load=60, drip=0.1)
    failure = await home.refused(
        binary=binary, ready_deadline_ms=500, stall_ms=1000, ready_cap_ms=1800
    )
    assert isinstance(failure, UnhealthyTimeout)
    assert 1800 <= failure.waited_ms < 3300


@pytest.mark.parametrize(
    "members",
    [
        {"stall_ms": 10},
        {"ready_cap_ms": 9000},
        {"stall_ms": 1000, "ready_deadline_ms": 5000, "ready_cap_ms": 4000},
    ],
)
async def test_what_makes_no_sense_is_refused(home: Home, members: dict[str, int]) -> None:
    with pytest.raises(InvalidLaunch):
        await home.launch(**members)


async def test_adoption_goes_on_with_the_moved_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "RECORD_S", 0.3)
    async with opened(tmp_path, clean=False) as first:
        binary = first.stub(load=3.5, loading="refuse", drip=0.1)
        params = first.params("x", binary=binary, ready_deadline_ms=800, stall_ms=1000)
        await first.supervisor.launch(replace(params, wait=False, ready_cap_ms=20_000))
        await anyio.sleep(1.6)
        supervision = first.record_on_disk().supervision
        assert supervision
        assert supervision.log_position
        launched, ends = supervision.launched_monotonic_ns, supervision.deadline_monotonic_ns
        assert launched
        assert ends
        assert ends - launched > 1.5 * S
        pid = pid_of(first.supervisor.get("x"))
    # Away for longer than the deadline in the record reaches: what it wrote meanwhile counts.
    time.sleep(1.2)  # noqa: ASYNC251 - nothing runs here now
    async with opened(tmp_path) as second:
        second.nonces |= first.nonces
        await second.seen(Adopted)
        view = await second.supervisor.wait("x", nonce=None, until="ready", timeout_ms=10_000)
        assert pid_of(view) == pid
        assert view.state == "ready"
        await second.stop()


async def test_the_log_of_a_ready_engine_is_kept_within_bounds(tmp_path: Path) -> None:
    config = Config(
        ports=POOL, devices=DevicesConfig(static=CARDS), logs=LogsConfig(max_bytes=1 << 20)
    )
    async with opened(tmp_path, config=config) as home:
        home.house.logs.size_s = 0.05
        await home.launch(binary=home.stub(flood=5 << 20))
        log = Path(home.supervisor.log_path("x"))
        with anyio.fail_after(10):
            while log.stat().st_size > 1 << 20:  # noqa: ASYNC110, ASYNC240
                await anyio.sleep(0.02)
        assert log.with_name(f"{log.name}.1").exists()
        lost = [warning for warning in home.of(Warning_) if warning.code == "log-lost"]
        assert len(lost) <= 1
        await home.stop()
