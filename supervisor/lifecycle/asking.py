"""What an attempt's engine is asked: whether it is ready, whether it is well, and its own pages."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec import UNSET, UnsetType

from supervisor.contracts.engine import LaunchPlan
from supervisor.engines.tls import speaks_tls
from supervisor.health.address import Addresses
from supervisor.health.line import Reply
from supervisor.health.outcome import Miss, Outcome
from supervisor.health.probe import Probe
from supervisor.launchers.base import Running
from supervisor.lifecycle.house import House
from supervisor.lifecycle.keyfile import key_for
from supervisor.lifecycle.ledger import Ledger


class Asking:
    """Of one attempt. Nothing is open but inside of ``probing`` and ``paging``."""

    def __init__(self, house: House, ledger: Ledger) -> None:
        self._house = house
        self._ledger = ledger
        self._probe: Probe | None = None
        self._pages: Probe | None = None
        self._where: Addresses | None = None
        self._key: str | UnsetType | None = UNSET

    @property
    def last(self) -> Outcome | None:
        """The latest answer."""
        return self._probe.last if self._probe else None

    @asynccontextmanager
    async def probing(self, plan: LaunchPlan, running: Running) -> AsyncIterator[Probe]:
        async with await self._new(plan, running) as self._probe:
            yield self._probe

    @asynccontextmanager
    async def paging(self, plan: LaunchPlan, running: Running) -> AsyncIterator[None]:
        """Pages may be asked for; by a probe of their own, so that neither waits for the other."""
        async with await self._new(plan, running) as pages:
            self._pages = pages
            try:
                yield
            finally:
                self._pages = None

    async def page(self, path: str, *, limit: int, within_s: float) -> Reply:
        """A page of the ready engine's own. Raises ``Miss`` where it cannot be had."""
        if self._pages is None:
            raise Miss("unreachable", "the engine cannot be asked now")
        return await self._pages.page(path, limit=limit, within_s=within_s)

    async def _new(self, plan: LaunchPlan, running: Running) -> Probe:
        ledger = self._ledger
        if self._key is UNSET:  # once, as the engine does: whoever is ready can be asked at once
            self._key = await key_for(self._house, ledger, plan)
        if self._where is None:
            self._where = Addresses(
                ledger.supervision.bind_host, lambda why: ledger.warn("proof-denied", why)
            )
        return Probe(
            self._where,
            ledger.record.port,
            plan.health,
            running,
            api_key=self._key or None,
            tls=speaks_tls(plan.argv, plan.env),
            mask=lambda text: ledger.redactor.text(text),  # noqa: PLW0108 - it changes
        )
