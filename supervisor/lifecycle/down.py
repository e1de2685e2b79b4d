"""Bringing an attempt down: one way for all, from a stop that somebody asked for to the undoing of
a launch that failed half way. What differs is in ``ending``.
"""

from functools import partial
from typing import Any

import anyio
from msgspec import UNSET

from supervisor.contracts.event import StopIncomplete as StopIncompleteEvent
from supervisor.contracts.event import Stopped, Stopping
from supervisor.contracts.failure import ExitedEarly
from supervisor.launchers.base import (
    CannotTellError,
    NotOursError,
    StopReceipt,
    StopUnfinishedError,
)
from supervisor.lifecycle.ending import MANNERS, Cause, Command
from supervisor.lifecycle.errors import CannotTell, NotOurs, StopIncomplete
from supervisor.lifecycle.life import Life

EARLY_EXIT_GRACE_MS = 5_000
"""What the members of a tree get to leave by themselves once their main process is gone."""
UNKNOWN_RECHECK_S = 10.0
INSIST_S = 0.5
"""Between two tries at a tree that has to go; doubled each time, up to ``UNKNOWN_RECHECK_S``."""


class Down:
    """The part of an instance's task that ends engines."""

    def __init__(self, life: Life) -> None:
        self._life = life

    async def bring_down(self, cause: Cause) -> bool:
        """End the whole tree of the present attempt, whatever it got hold of, and say so.

        An exit is news at once; every other failure is told when all of it is undone. False where
        a ready engine may not be touched, and was not: it goes on as if nobody had asked.
        """
        life, manner = self._life, MANNERS[cause.reason]
        failed = cause.failure if cause.reason == "failure" else None
        if failed is not None:
            life.failure = failed
            if isinstance(failed, ExitedEarly):
                life.tell_failure(failed)
            await life.attempt.undo_opening()
        if life.attempt.running is not None:
            grace_ms = self._grace_ms(cause.grace_ms)
            # An earlier daemon, or an earlier run of this task, may have sent a signal already.
            life.attempt.told_to_end |= life.supervision.intent == "stopping"
            if manner.recorded:
                await self._record(cause, grace_ms)
            if manner.told and Stopped not in life.ledger.told:
                life.ledger.publish(Stopping(grace_ms=grace_ms, reason=cause.reason))
            life.house.at("stopping" if manner.told else "unwinding")
            receipt = await self.clear_tree(grace_ms, insists=manner.insists)
            if receipt is None:
                await self._leave_up()
                return False
            if manner.told:
                self._tell_stopped(receipt, again=cause.again)
        if failed is not None:
            life.tell_failure(failed)
        return True

    async def clear_tree(self, grace_ms: int, *, insists: bool = False) -> StopReceipt | None:
        """End every process of the instance. ``None`` where it may not be touched, and was not.

        Who ``insists`` is not let go before the tree is gone; nor is anybody whose tree was told to
        end, for it is not known what of it still serves.
        """
        receipt: StopReceipt | None = None
        async with anyio.create_task_group() as group:
            group.start_soon(self._heed, grace_ms)
            receipt = await self._clear(grace_ms, insists=insists)
            group.cancel_scope.cancel()
        return receipt

    async def _clear(self, grace_ms: int, *, insists: bool) -> StopReceipt | None:
        life, pause_s = self._life, INSIST_S
        until_s = anyio.current_time() + grace_ms / 1_000
        # Nothing tells when a tree that could not be judged can be.
        while (receipt := await self._try_to_clear(grace_ms)) is None:
            if not (insists or life.attempt.told_to_end):
                return None
            life.held_back = True
            self._answer_for_failure()
            await anyio.sleep(min(pause_s, UNKNOWN_RECHECK_S))
            pause_s *= 2
            grace_ms = max(0, round((until_s - anyio.current_time()) * 1_000))
        life.held_back = False
        return receipt

    async def _try_to_clear(self, grace_ms: int) -> StopReceipt | None:
        life = self._life
        if life.vouched:
            return await self._take_the_word()
        try:
            return await life.attempt.clear_tree(grace_ms, self._on_stuck)
        except NotOursError as error:
            life.doubt(f"the stop was refused: {error}")
            life.refusal = NotOurs(f"{life.name} was not touched: {error}")
        except (CannotTellError, StopUnfinishedError) as error:
            if life.attempt.told_to_end:
                life.doubt(f"the stop is not finished: {error}")
                devices = life.record.devices
                life.ledger.tell_once(StopIncompleteEvent(survivors=(), devices=devices))
                life.refusal = StopIncomplete(
                    f"{life.name} was told to end, and who is left of it cannot be known: {error}; "
                    "its devices stay held, and this is tried again"
                )
            else:
                life.doubt(f"the stop was refused: {error}")
                life.refusal = CannotTell(
                    f"{life.name} was not touched: {error}; where that is so for good, "
                    f"`enginectl release --force {life.name}` frees its devices"
                )
        return None

    async def _take_the_word(self) -> StopReceipt | None:
        life = self._life
        life.vouched = False
        doubt = await life.attempt.unjudged()
        if doubt is None:
            life.refusal = NotOurs(f"{life.name} can be judged again; stop it instead")
            return None
        life.attempt.liveness = "gone"
        life.ledger.warn("released-alive", f"released by force; {doubt}")
        return StopReceipt(exit=None)

    async def _record(self, cause: Cause, grace_ms: int) -> None:
        """So that the next daemon goes on with it, and gives it no more time than this one."""
        ledger, command = self._life.ledger, self._life.command
        await ledger.write_or_warn(
            ledger.draft(
                intent="stopping",
                restart_after_stop=cause.again,
                stop_asked=command is not None and command.final,
                stopping_for=cause.failure,
                grace_monotonic_ns=self._grace_end(grace_ms),
            )
        )

    def _grace_end(self, grace_ms: int) -> int:
        return self._life.house.clock.monotonic_ns() + grace_ms * 1_000_000

    async def _leave_up(self) -> None:
        life = self._life
        await life.ledger.write_or_warn(
            life.ledger.draft(
                intent="running", restart_after_stop=False, stopping_for=None, stop_asked=False
            )
        )
        life.command = None
        life.fresh = False
        life.tell()

    def _tell_stopped(self, receipt: StopReceipt, *, again: bool) -> None:
        exit_ = self._life.attempt.exit
        self._life.ledger.tell_once(
            Stopped(
                devices=() if again else self._life.record.devices,
                exit_code=exit_.exit_code if exit_ else None,
                signal=exit_.signal if exit_ else None,
                killed=receipt.killed,
                device_memory=receipt.device_memory or UNSET,
            )
        )

    def _grace_ms(self, asked: int | None) -> int:
        """As asked; else what is left to an engine that is being stopped already; else as usual."""
        if asked is not None:
            return asked
        life = self._life
        supervision, now = life.supervision, life.house.now()
        until = supervision.grace_monotonic_ns
        begun = supervision.intent == "stopping" and supervision.boot_id == now.boot_id
        if until is not None and begun:
            return max(0, until - now.monotonic_ns) // 1_000_000
        return life.style.grace_ms if life.attempt.exit is None else EARLY_EXIT_GRACE_MS

    async def _heed(self, grace_ms: int) -> None:
        """Orders that come while the tree is going anyway, for which it has ``grace_ms`` so far.

        A stop wins over whatever was to follow, and a shorter grace counts from now.
        """
        life = self._life
        while True:
            heard, news = life.command, dict[str, Any]()
            if heard and heard.grace_ms is not None and heard.grace_ms < grace_ms:
                grace_ms = heard.grace_ms
                if life.attempt.running is not None:
                    life.attempt.running.hasten(grace_ms)
                news["grace_monotonic_ns"] = self._grace_end(grace_ms)
            if heard and heard.final and not life.supervision.stop_asked:
                news |= {"restart_after_stop": False, "stop_asked": True}
            if news and life.supervision.intent == "stopping":
                await life.ledger.write_or_warn(life.ledger.draft(**news))
            await life.until(partial(self._is_not, heard))

    def _is_not(self, heard: Command | None) -> bool:
        return self._life.command is not heard

    def _on_stuck(self) -> None:
        life = self._life
        names = ", ".join(f"{member.name} ({member.pid})" for member in life.attempt.stuck)
        life.refusal = StopIncomplete(
            f"{life.name}: {names} survived SIGKILL; the devices stay held until they are gone"
        )
        self._answer_for_failure()

    def _answer_for_failure(self) -> None:
        """It will take long: whoever waits for a launch that failed is told why it did by now."""
        life = self._life
        if life.failure is not None and not life.ready:
            life.tell_failure(life.failure)
        life.tell()
