"""An instance's record and its voice: what is written down about it, and what is said of it.

Everything that changes a record goes through here, and one task at a time uses it; so writes of one
record are in order, and what is in memory was on disk before (or a warning said that it was not).
"""

from typing import Any

import anyio
from msgspec.structs import replace

from supervisor.contracts.event import Event, Warning_, WarningCode
from supervisor.contracts.failure import SpawnFailed
from supervisor.contracts.instance import InstanceRecord, Supervision
from supervisor.instances.durable import StoreError
from supervisor.lifecycle.house import House
from supervisor.lifecycle.preflight import Problem
from supervisor.lifecycle.redaction import Redactor
from supervisor.lifecycle.told import NOTHING, Told, note

JOURNAL_PATIENCE_S = 1.0


class Ledger:
    """Holds the newest record. A reader sees it change only at the moments named here."""

    def __init__(self, house: House, record: InstanceRecord, told: Told = NOTHING) -> None:
        self._house = house
        self.record = record
        self.told = dict(told)
        """What was said of the newest attempt, by this daemon and by those before it."""
        self._learned: tuple[str, ...] = ()
        self.redactor = Redactor.of_record(record)

    @property
    def supervision(self) -> Supervision:
        supervision = self.record.supervision
        assert supervision, "lifecycle runs only records that have one"
        return supervision

    def draft(self, *, record: dict[str, Any] | None = None, **supervision: Any) -> InstanceRecord:
        """The record with these members changed; nothing is kept or written yet."""
        changed = replace(self.supervision, **supervision)
        return replace(self.record, supervision=changed, **(record or {}))

    async def claim(self, record: InstanceRecord) -> None:
        """As ``write_or_fail``, but what the record takes is taken before the first wait."""
        self._keep(record)
        await self.write_or_fail(record)

    async def write_or_fail(self, record: InstanceRecord) -> None:
        """Before anything depends on it: a launch whose record cannot be written ends here."""
        try:
            await self._house.store.write(record)
        except StoreError as error:
            failure = SpawnFailed(detail=f"the instance's record cannot be written: {error}")
            if error.reason in ("disk-full", "denied"):
                failure = replace(failure, reason=error.reason)
            raise Problem(failure) from error
        self._keep(record)

    async def write_or_warn(self, record: InstanceRecord) -> None:
        """After the fact: a disk that is full must not end an engine, nor stop a stop."""
        try:
            await self._house.store.write(record)
        except StoreError as error:
            self.warn("record-write-failed", str(error))
            # A nonce is one from the moment at which the disk has it: the engine will carry it.
            record = replace(record, nonce=self.record.nonce)
        self._keep(record)

    async def put_back(self) -> None:
        """Where somebody removed the record's file: without it the lease would not last."""
        try:
            if await self._house.store.write_if_missing(self.record):
                self.warn("record-missing", "the file of this record was gone; it is there again")
        except StoreError as error:
            self.warn("record-write-failed", str(error))

    def _keep(self, record: InstanceRecord) -> None:
        self.record = record
        self.redactor = Redactor.of_record(record).knowing(self._learned)

    def learn(self, secrets: tuple[str, ...]) -> None:
        """Mask these too from now on: the launch names them, and its record does not hold them."""
        self._learned = secrets
        self.redactor = self.redactor.knowing(secrets)

    def publish(self, event: Event) -> None:
        note(self.told, event)
        self._house.publish(replace(event, instance=self.record.name, nonce=self.record.nonce))

    def tell_once(self, event: Event) -> None:
        """Once an attempt, over all the daemons that have to do with it."""
        if type(event) not in self.told:
            self.publish(event)

    async def settle(self) -> None:
        """Before a fact leaves the record: what was said of it is in the journal by then.

        Not for long, for a disk that hangs must hold no devices.
        """
        with anyio.move_on_after(JOURNAL_PATIENCE_S):
            await self._house.bus.settled()

    def warn_once(self, code: WarningCode, detail: str) -> None:
        """Once an attempt, like ``tell_once``."""
        if code not in self.told:
            self.warn(code, detail)

    def warn(self, code: WarningCode, detail: str) -> None:
        self.publish(Warning_(code=code, detail=self.redactor.text(detail)))
