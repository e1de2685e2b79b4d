"""GPU-7: two clients race for a name or for devices, over and over, at a real daemon.

A short form runs by default; ``ENGINE_SUPERVISOR_TEST_ROUNDS=200`` is the whole of it.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import msgspec

from supervisor.client import Client, RpcError
from supervisor.contracts.failure import AlreadyRunning, LaunchFailure, NoCapacity
from supervisor.contracts.instance import InstanceRecord, InstanceView, LaunchParams
from tests.daemon.engined import SOON, Engined, stop
from tests.lifecycle.house import A, B, bearers, pid_of

ROUNDS = int(os.environ.get("ENGINE_SUPERVISOR_TEST_ROUNDS") or 24)

Side = tuple[str, tuple[str, ...]]
"""A name and devices."""

RACES: tuple[tuple[Side, Side, type[LaunchFailure]], ...] = (
    (("one", (A,)), ("other", (A,)), NoCapacity),
    (("same", (A,)), ("same", (B,)), AlreadyRunning),
    (("one", (A, B)), ("other", (B, A)), NoCapacity),
    (("same", (A,)), ("same", (A,)), AlreadyRunning),
)


def test_two_clients_race_and_one_wins(engined: Engined) -> None:
    engined.start()
    clients = engined.client(), engined.client()
    binary = engined.stub()
    with ThreadPoolExecutor(2) as threads:
        for number in range(ROUNDS):
            one, other, lost = RACES[number % len(RACES)]
            sides = (one, other) if number % 8 < 4 else (other, one)
            start = Barrier(2)

            def run(
                client: Client, params: LaunchParams, start: Barrier = start
            ) -> InstanceView | LaunchFailure | None:
                start.wait(SOON)
                try:
                    return client.launch(params)
                except RpcError as error:
                    return error.failure

            asked = [engined.params(name, devices=them, binary=binary) for name, them in sides]
            outcomes = list(threads.map(run, clients, asked))
            [winner] = [it for it in outcomes if isinstance(it, InstanceView)]
            [loser] = [it for it in outcomes if not isinstance(it, InstanceView)]
            assert isinstance(loser, lost)
            holds_what_it_says(engined, winner)
            assert stop(clients[0], winner.record.name).state == "exited"
            assert engined.records() == []
            assert list(bearers({winner.record.nonce})) == []
    assert len(engined.nonces()) == 2 * ROUNDS, "each launch was told of, the refused ones too"


def holds_what_it_says(engined: Engined, winner: InstanceView) -> None:
    """One record, one process, and the devices it asked for, held by nobody else."""
    assert engined.records() == [f"{winner.record.name}.json"]
    path = engined.folder / "state" / "instances" / engined.records()[0]
    record = msgspec.json.decode(path.read_bytes(), type=InstanceRecord)
    assert record.nonce == winner.record.nonce
    assert list(bearers(engined.nonces())) == [pid_of(winner)]
    leases = {it.device: it.holders for it in engined.clients[0].leases().leases if it.holders}
    assert set(leases) == set(winner.record.devices)
    assert {holder.nonce for those in leases.values() for holder in those} == {record.nonce}
