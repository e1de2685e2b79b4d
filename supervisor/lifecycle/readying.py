"""The wait of an attempt for its readiness: raced against the exit, the deadline, and its log."""

from collections.abc import Callable

import anyio

from supervisor.clock import rfc3339
from supervisor.contracts.event import Ready
from supervisor.contracts.failure import SpawnFailed
from supervisor.health.outcome import NotReady
from supervisor.health.outcome import Ready as Answered
from supervisor.health.readiness import wait_ready
from supervisor.launchers.base import Exit, Running
from supervisor.lifecycle.asking import Asking
from supervisor.lifecycle.house import House
from supervisor.lifecycle.ledger import Ledger
from supervisor.lifecycle.loading import Loading
from supervisor.lifecycle.preflight import Problem
from supervisor.lifecycle.words import exited_early, timed_out

DOOM_S = 0.5
"""Between the line that says an engine will never be ready, and the end of the wait for it."""


async def until_ready(
    house: House,
    ledger: Ledger,
    running: Running,
    asking: Asking,
    on_exit: Callable[[Exit], None],
) -> None:
    """Returns with ``readyAt`` written and ``ready`` published; raises ``Problem`` otherwise.

    ``on_exit`` hears of an exit at once.
    """
    supervision = ledger.supervision
    plan = supervision.plan
    if plan is None or supervision.deadline_monotonic_ns is None:
        raise Problem(SpawnFailed(detail="the record names a handle but no plan"))
    monotonic_ns = house.clock.monotonic_ns
    since_ns = supervision.launched_monotonic_ns or monotonic_ns()
    budget_ms = supervision.launch.ready_deadline_ms or plan.health.ready_deadline_ms
    loading = Loading(house, ledger, budget_ms)
    exit_: Exit | None = None
    outcome: object = None
    async with (
        asking.probing(plan, running) as probe,
        loading.watched(),
        anyio.create_task_group() as race,
    ):

        async def see_exit() -> None:
            nonlocal exit_
            exit_ = await running.wait_exit()
            on_exit(exit_)
            race.cancel_scope.cancel()

        async def see_doom() -> None:
            await loading.doomed.wait()
            await anyio.sleep(DOOM_S)  # for the rest of what it has to say, or its exit
            race.cancel_scope.cancel()

        race.start_soon(see_exit)
        race.start_soon(see_doom)
        race.start_soon(loading.keep_record)
        outcome = await wait_ready(
            probe,
            interval_ms=plan.health.interval_ms,
            since_ns=since_ns,
            deadline_ns=loading.deadline_ns,
            monotonic_ns=monotonic_ns,
            pace=house.pace,
            on_first=lambda seen: _warn_of(ledger, seen),
        )
        race.cancel_scope.cancel()
    if exit_ is not None:
        raise Problem(await exited_early(house, ledger, exit_))
    if not isinstance(outcome, Answered):
        waited_ns = monotonic_ns() - since_ns
        last = asking.last if isinstance(asking.last, NotReady) else None
        raise Problem(await timed_out(house, ledger, waited_ns // 1_000_000, last))
    await _become_ready(house, ledger)


def _warn_of(ledger: Ledger, seen: NotReady) -> None:
    """Some answers will not change by waiting, so they are news at their first occurrence."""
    if seen.kind == "foreign":
        ledger.warn("port-foreign", seen.text)
    elif seen.kind == "denied":
        ledger.warn("proof-denied", seen.text)


async def _become_ready(house: House, ledger: Ledger) -> None:
    now = house.clock.monotonic_ns()
    waited_ns = now - (ledger.supervision.launched_monotonic_ns or now)
    await ledger.write_or_warn(
        ledger.draft(ready_at=rfc3339(house.clock.wall()), ready_monotonic_ns=now)
    )
    ledger.publish(Ready(port=ledger.record.port, waited_ms=waited_ns // 1_000_000))
    house.at("ready")
