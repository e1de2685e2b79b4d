"""Containers of ours, by their labels, for the times when no record leads to them. Blocks.

One that is dead, or was created and never started, is nobody's any more and goes. One that runs is
somebody's work: it is reported, and stays.
"""

import json
import os
from collections.abc import Collection, Container, Iterator
from urllib.parse import quote

import msgspec

from supervisor.contracts.event import MemberProcess
from supervisor.launchers.base import Bearer, CannotTellError, Stray, Trace
from supervisor.launchers.docker.ask import ask
from supervisor.launchers.docker.engine import EngineDown, EngineRefused
from supervisor.launchers.docker.labels import INSTANCE, NONCE, SUPERVISOR, devices_of

LIST_S = 2.0
REMOVE_S = 30.0
_DEAD = frozenset({"created", "initialized", "configured", "exited", "stopped", "dead"})


class Entry(msgspec.Struct, frozen=True, rename="pascal"):
    """One line of the engine's list."""

    id: str
    state: str
    names: list[str] = []
    labels: dict[str, str] | None = None

    @property
    def marks(self) -> dict[str, str]:
        return self.labels or {}

    @property
    def name(self) -> str:
        return self.names[0].lstrip("/") if self.names else self.id[:12]


def listed(socket: str, labels: dict[str, str]) -> Iterator[Entry]:
    """Those with all these labels, dead ones too. Raises ``CannotTellError``.

    Where there is no socket there is no engine, and so nothing of ours: that is an answer.
    """
    if not os.path.exists(socket):
        return
    wanted = {"label": [f"{name}={value}" for name, value in labels.items()]}
    what = f"/containers/json?all=1&filters={quote(json.dumps(wanted))}"
    try:
        yield from msgspec.convert(ask(socket, what, within_s=LIST_S), list[Entry])
    except (EngineDown, EngineRefused, msgspec.ValidationError) as error:
        raise CannotTellError(f"the container engine cannot be asked: {error}") from error


def find_strays(
    socket: str, supervisor: str, known: Container[str], living: Collection[str]
) -> tuple[Stray, ...]:
    """Of this supervisor, without a record (``known`` are ids) and not ``living``, by nonce."""
    found: list[Stray] = []
    for entry in listed(socket, {SUPERVISOR: supervisor}):
        if entry.id in known or entry.marks.get(NONCE) in living or entry.state == "removing":
            continue
        if entry.state in _DEAD:
            _remove(socket, entry.id)
            continue
        name = entry.marks.get(INSTANCE, entry.name)
        ending = f"`docker rm -f {entry.name}`"
        nonce = entry.marks.get(NONCE)
        place = f"container {entry.name}"
        found.append(Stray(name=name, place=place, ending=ending, nonce=nonce, runtime="docker"))
    return tuple(found)


def find_containers(socket: str, supervisor: str, trace: Trace) -> tuple[Bearer, ...]:
    """Living ones of that launch or, where its nonce is lost, of that name.

    Raises ``CannotTellError``: of one that was a container, no engine to be asked is no answer.
    """
    if trace.runtime == "docker" and not os.path.exists(socket):
        raise CannotTellError(f"its container engine is not there to be asked ({socket})")
    labels = {INSTANCE: trace.name, SUPERVISOR: supervisor}
    if trace.nonce is not None:
        labels = {NONCE: trace.nonce}
    return tuple(
        Bearer(
            process=MemberProcess(pid=0, name=entry.name),
            devices=devices_of(entry.marks),
            sign="by its labels",
            ending=f"docker rm -f {entry.name}",
        )
        for entry in listed(socket, labels)
        if entry.state not in _DEAD
    )


def _remove(socket: str, container: str) -> None:
    """Not by force: one that was started meanwhile stays. Raises ``CannotTellError``."""
    try:
        ask(socket, f"/containers/{container}?v=1", "DELETE", within_s=REMOVE_S)
    except EngineRefused as no:
        if not (no.missing or no.conflict):
            raise CannotTellError(f"a dead container cannot be removed: {no}") from no
    except EngineDown as error:
        raise CannotTellError(str(error)) from error
