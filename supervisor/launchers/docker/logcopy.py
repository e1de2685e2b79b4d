"""A container's output, copied into the log file of its attempt.

The container engine keeps what was written, within its own bounds, so nothing is lost while nobody
copies: neither over a restart of ours nor over one of the container engine's. How far the copy has
come is noted beside the log, with each piece of it.
"""

import os
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

import anyio
import anyio.to_thread

from supervisor.launchers.docker.engine import Engine, EngineDown, EngineRefused

POSITION = ".position"
"""What the file beside a log is called, behind the log's own name."""
RETRY_S = 0.5
FULL_RETRY_S = 5.0
_HEADER = struct.Struct(">BxxxL")
_FRAME_BYTES = 16 << 20
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Position:
    """The last message that was copied: its time, in ns, and how many of that very time there were
    (the pieces of one long line share it).
    """

    at_ns: int = 0
    count: int = 0


@dataclass(slots=True)
class Piece:
    """Some messages, ready to be written."""

    data: bytes
    position: Position


@dataclass(slots=True)
class LogCopy:
    """Of one container into one file. ``run`` ends when all that a dead one wrote is copied."""

    engine: Engine
    container: str
    path: str
    done: anyio.Event = field(default_factory=anyio.Event)
    _over: anyio.Event = field(default_factory=anyio.Event)
    _position: Position = Position()

    def finish(self) -> None:
        """The container is dead: read what is left, and end."""
        self._over.set()

    async def run(self) -> None:
        self._position = await anyio.to_thread.run_sync(_read_position, self.path)
        try:
            while not await self._copied():
                with anyio.move_on_after(RETRY_S):
                    await self._over.wait()
        finally:
            self.done.set()

    async def _copied(self) -> bool:
        """One stream to its end; whether there will be no other."""
        last = self._over.is_set()
        params = {
            "stdout": "1",
            "stderr": "1",
            "timestamps": "1",
            "follow": "0" if last else "1",
            "since": _seconds(self._position.at_ns),
        }
        try:
            async with self.engine.stream(
                "GET", f"containers/{self.container}/logs", params
            ) as response:
                async for piece in pieces(self.engine.chunks(response), self._position):
                    await self._write(piece)
        except EngineRefused as no:
            if no.missing:
                return True
            await self._write(Piece(f"[no log to be had: {no.message}]\n".encode(), self._position))
            await self._over.wait()
            return True
        except EngineDown:
            if last:  # the daemon's restart has another try; the exit must not wait for it
                return True
        return last

    async def _write(self, piece: Piece) -> None:
        while True:
            try:
                await anyio.to_thread.run_sync(_append, self.path, piece)
                self._position = piece.position
                return
            except OSError:
                await anyio.sleep(FULL_RETRY_S)


async def pieces(chunks: AsyncIterator[bytes], begin: Position) -> AsyncIterator[Piece]:
    """Messages behind ``begin``, as many at a time as came together."""
    kept, position, skip = b"", begin, begin.count
    async for chunk in chunks:
        kept += chunk
        data: list[bytes] = []
        at = 0
        while len(kept) - at >= _HEADER.size:
            _, length = _HEADER.unpack_from(kept, at)
            if length > _FRAME_BYTES:
                raise EngineDown("the container engine's log stream is not understood")
            if len(kept) - at - _HEADER.size < length:
                break
            at += _HEADER.size + length
            stamp, _, text = kept[at - length : at].partition(b" ")
            at_ns = nanoseconds(stamp.decode(errors="replace"))
            if at_ns < begin.at_ns:
                continue
            if at_ns == begin.at_ns and skip:
                skip -= 1
                continue
            same = position.count if at_ns == position.at_ns else 0
            position = Position(at_ns, same + 1)
            data.append(text)
        kept = kept[at:]
        if data:
            yield Piece(b"".join(data), position)


def nanoseconds(stamp: str) -> int:
    """Since 1970, of ``2026-12-01T01:02:03.123456789Z`` or with an offset in place of the Z."""
    whole, dot, rest = stamp.partition(".")
    try:
        if not dot:
            return _whole(stamp) * 1_000_000_000
        digits = len(rest) - len(rest.lstrip("0123456789"))
        return _whole(whole + rest[digits:]) * 1_000_000_000 + int(rest[:digits].ljust(9, "0")[:9])
    except ValueError:
        raise EngineDown("the container engine's log stream has no times") from None


def _whole(stamp: str) -> int:
    return int((datetime.fromisoformat(stamp) - _EPOCH).total_seconds())


def _seconds(at_ns: int) -> str:
    return f"{at_ns // 1_000_000_000}.{at_ns % 1_000_000_000:09}"


def _append(path: str, piece: Piece) -> None:
    """Both in one go: who is killed between the two copies one piece twice."""
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _write_all(log, piece.data)
    finally:
        os.close(log)
    note = os.open(path + POSITION, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        # Of one length always, so that one write replaces it.
        os.pwrite(note, f"{piece.position.at_ns:020} {piece.position.count:010}\n".encode(), 0)
    finally:
        os.close(note)


def _write_all(fd: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]


def _read_position(path: str) -> Position:
    try:
        with open(path + POSITION, encoding="ascii") as file:
            at_ns, count = map(int, file.read(64).split())
        return Position(at_ns, count)
    except (OSError, ValueError):
        return Position()


def make_log(path: str) -> None:
    """Raises ``OSError``."""
    os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600))
