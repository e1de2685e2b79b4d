"""What holds for any records, handles, liveness and devices, whatever was asked in whatever order.

A small machine of leases: launches claim, engines live, die, half die or cannot be judged, records
go only when their handle is gone for certain, devices are lost and found, strangers come and go.
After each step the laws are looked at.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hypothesis import example, given
from hypothesis import strategies as st

from supervisor.contracts.config import ForeignPolicy
from supervisor.contracts.device import AcceleratorInfo, DeviceProcess
from supervisor.contracts.host import Accelerator, DeviceId
from supervisor.contracts.instance import (
    DockerHandle,
    HandleReference,
    InstanceRecord,
    Liveness,
    PinnedHandle,
)
from supervisor.instances.books import holders, memory_is_hosts, parent_of, wholes_of
from supervisor.instances.lease import Claim, Grant, InvalidClaim, Refusal, grant
from supervisor.instances.standing import standings
from tests.instances.builders import GIB, PROCESS, a_device, a_record

DEVICES = (
    a_device("GPU-a", index=0),
    a_device("GPU-b", index=1),
    a_device("GPU-w", index=2, memory=80 * GIB),
    a_device("MIG-l", index=3, memory=40 * GIB, parent="GPU-w"),
    a_device("MIG-r", index=4, memory=40 * GIB, parent="GPU-w"),
    a_device("GPU-shy", index=5, memory=None),
    a_device("metal:0", "metal", index=6, memory=64 * GIB, unified=True),
    a_device("cpu:0", "cpu", index=7, memory=64 * GIB, unified=True),
)
WHOLE = {device.id: device for device in DEVICES}
HANDLES: tuple[HandleReference | None, ...] = (
    *(None, PROCESS, DockerHandle(container="c"), PinnedHandle(holder="h")),
)
STRANGER = (DeviceProcess(pid=4711),)

names = st.sampled_from([*WHOLE, "GPU-nowhere"])
claims = st.builds(
    Claim,
    devices=st.none() | st.lists(names, max_size=3).map(tuple),
    count=st.integers(-1, 5),
    exclusive=st.none() | st.booleans(),
    memory_bytes=st.none() | st.integers(0, 90).map(lambda size: size * GIB),
)
liveness: st.SearchStrategy[Liveness] = st.sampled_from(["alive", "leaderGone", "gone", "unknown"])
steps = st.one_of(
    st.tuples(st.just("claim"), claims, st.sampled_from(HANDLES)),
    st.tuples(st.just("judge"), st.integers(0, 20), liveness),
    st.tuples(st.just("lose"), names),
    st.tuples(st.just("find"), names),
    st.tuples(st.just("stranger"), names),
    st.tuples(st.just("alone"), names),
)


@dataclass
class Host:
    """Leases as the daemon keeps them: a record goes only with a handle that is certainly gone."""

    accelerator: Accelerator
    policy: ForeignPolicy
    records: dict[str, InstanceRecord] = field(default_factory=dict)
    lost: set[DeviceId] = field(default_factory=set)
    strange: set[DeviceId] = field(default_factory=set)
    count: int = 0

    @property
    def offered(self) -> tuple[AcceleratorInfo, ...]:
        return tuple(device for device in DEVICES if device.id not in self.lost)

    @property
    def foreign(self) -> dict[DeviceId, tuple[DeviceProcess, ...]]:
        return {device.id: STRANGER for device in self.offered if device.id in self.strange}

    def ask(self, claim: Claim) -> Grant | Refusal | InvalidClaim:
        return grant(
            claim,
            self.offered,
            self.records,
            accelerator=self.accelerator,
            foreign=self.foreign,
            policy=self.policy,
        )

    def claim(self, claim: Claim, handle: HandleReference | None) -> None:
        answer = self.ask(claim)
        if isinstance(answer, Refusal):
            assert answer.free >= 0
            assert answer.need > 0
            assert answer.free < answer.need or answer.need_bytes is not None
            if answer.need_bytes is not None and answer.free_bytes is not None:
                assert answer.free_bytes < answer.need_bytes
        if not isinstance(answer, Grant):
            return
        assert len(set(answer.devices)) == len(answer.devices)
        if claim.devices is not None:
            assert answer.devices == claim.devices
        else:
            assert len(answer.devices) == claim.count
            assert {WHOLE[it].accelerator for it in answer.devices} == {self.accelerator}
            assert self.policy == "allow" or not self.strange.intersection(answer.devices)
        assert self.policy != "refuse" or not self.strange.intersection(answer.devices)
        self.count += 1
        name = f"n{self.count}"
        self.records[name] = a_record(
            name,
            devices=answer.devices,
            exclusive=answer.exclusive,
            memory_bytes=claim.memory_bytes,
            wholes=wholes_of([WHOLE[device] for device in answer.devices]),
            ref=handle,
        )

    def judge(self, number: int, seen: Liveness) -> None:
        if not self.records:
            return
        name = list(self.records)[number % len(self.records)]
        record = self.records[name]
        if seen == "gone" and not isinstance(record.ref, PinnedHandle):
            del self.records[name]

    def look(self) -> None:
        held = holders(self.records)
        _alone_or_sharing(held)
        _within_the_budget(self.records)
        told = standings(self.offered, self.records, foreign=self.foreign)
        everything = {device.id for device in self.offered} | set(held)
        assert set(told) == everything, "free, held, foreign and lost are the whole"
        for device, standing in told.items():
            assert (standing == "lost") == (device in self.lost)
            if standing == "free":
                one = self.ask(Claim(devices=(device,), exclusive=True))
                assert isinstance(one, Grant), "what is free can be had"
            if standing == "held" and not held.get(device):
                kin = {it.id for it in DEVICES if parent_of(it) == device}
                kin |= {parent_of(WHOLE[device]) or device}
                assert kin & set(held)
            if standing == "held":
                assert isinstance(self.ask(Claim(devices=(device,), exclusive=True)), Refusal)


def _alone_or_sharing(held: Mapping[DeviceId, tuple[object, ...]]) -> None:
    for device, those in held.items():
        assert len(those) == 1 or not any(getattr(it, "exclusive") for it in those)  # noqa: B009
        if (whole := parent_of(WHOLE[device])) is not None:
            assert whole not in held, "a whole and its slice"


def _within_the_budget(records: Mapping[str, InstanceRecord]) -> None:
    """Of a device, and of the one memory that all devices of the host's own draw on."""
    claimed: dict[str, int] = {}
    for record in records.values():
        for device in record.devices:
            pot = "host" if memory_is_hosts(WHOLE[device]) else device
            size = record.supervision.memory_bytes if record.supervision else None
            claimed[pot] = claimed.get(pot, 0) + (size or 0)
    for pot, sum_ in claimed.items():
        total = 64 * GIB if pot == "host" else WHOLE[pot].memory_total_bytes
        assert total is None or sum_ <= total


@example(
    [
        ("claim", Claim(devices=("MIG-l",)), PROCESS),
        ("lose", "MIG-l"),
        ("claim", Claim(devices=("GPU-w",)), PROCESS),
    ],
    "cuda",
    "avoid",
)
@given(
    st.lists(steps, max_size=25),
    st.sampled_from(["cuda", "cpu", "metal", "rocm"]),
    st.sampled_from(["avoid", "refuse", "allow"]),
)
def test_leases_never_contradict_one_another(
    taken: list[tuple[object, ...]], accelerator: Accelerator, policy: ForeignPolicy
) -> None:
    host = Host(accelerator, policy)
    for step in taken:
        match step:
            case ("claim", Claim() as claim, handle):
                host.claim(claim, handle)  # type: ignore[arg-type]
            case ("judge", int(number), seen):
                host.judge(number, seen)  # type: ignore[arg-type]
            case ("lose", str(name)) if name in WHOLE:
                host.lost.add(name)
            case ("find", str(name)):
                host.lost.discard(name)
            case ("stranger", str(name)):
                host.strange.add(name)
            case ("alone", str(name)):
                host.strange.discard(name)
        host.look()


@given(st.lists(claims, max_size=8))
def test_an_order_of_names_makes_no_difference(asked: list[Claim]) -> None:
    """[A, B] and [B, A] are one claim: either is granted exactly where the other is."""
    host = Host("cuda", "avoid")
    for claim in asked:
        if claim.devices:
            answers = (host.ask(claim), host.ask(replace(claim, devices=claim.devices[::-1])))
            assert type(answers[0]) is type(answers[1])
        host.claim(claim, PROCESS)
