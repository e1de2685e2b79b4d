"""Bytes to lines: one message a line, whatever pieces the bytes arrive in."""

from supervisor.contracts.rpc import MAX_REQUEST_BYTES


class LineTooLong(Exception):
    """More bytes than a request may have, and no line end among them."""


class LineBuffer:
    """Accumulates chunks and gives lines. Holds one unfinished line and what was last fed."""

    def __init__(self, limit: int = MAX_REQUEST_BYTES) -> None:
        self._limit = limit
        self._bytes = bytearray()
        self._start = 0
        self._scanned = 0

    def feed(self, chunk: bytes) -> None:
        self._bytes += chunk

    def take(self) -> bytes | None:
        """The next line without its end, or None until more is fed. Raises ``LineTooLong``."""
        end = self._bytes.find(b"\n", self._scanned)
        if end < 0:
            del self._bytes[: self._start]
            self._start = 0
            self._scanned = len(self._bytes)
            if self._scanned > self._limit:
                raise LineTooLong
            return None
        if end - self._start > self._limit:
            raise LineTooLong
        line = bytes(memoryview(self._bytes)[self._start : end])
        self._start = self._scanned = end + 1
        return line

    @property
    def unfinished(self) -> int:
        """Bytes that are held."""
        return len(self._bytes) - self._start

    def clear(self) -> None:
        self._bytes.clear()
        self._start = self._scanned = 0
