"""The daemon's own log: one JSON object a line on stderr, which systemd takes as it is.

Nobody may come to harm for want of a log line. Who reads stderr can go away (EPIPE), its disk can
be full, and a reader that stops reading would hold whoever writes, which is the event loop. So a
line that cannot be written is dropped and counted; the first line that can be written again stands
behind one that says how many were lost.
"""

import errno
import json
import logging
import os
import select
import threading
from datetime import UTC, datetime

import structlog

from supervisor.clock import rfc3339
from supervisor.contracts.rpc import WriterHealth

STDERR = 2
CHUNK_BYTES = 4096
"""``PIPE_BUF``: a pipe that polls as writable takes this much without a wait."""
PATIENCE_MS = 20
"""For a reader that is only slow; once a line was lost, none."""

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


class LogSink:
    """Takes lines from any thread, and never raises. A text file for whoever expects one."""

    def __init__(self, fd: int = STDERR) -> None:
        self._fd = fd
        self._turn = threading.Lock()
        self._lost = 0
        self._since = 0
        """Lost since the last line that was written."""
        self._error: str | None = None
        self._torn = False

    @property
    def health(self) -> WriterHealth:
        return WriterHealth(lost=self._lost, error=self._error)

    def write(self, text: str) -> int:
        line = text.encode("utf-8", "backslashreplace")
        with self._turn:
            try:
                if self._since:
                    self._put(self._confession())
                    self._since, self._error = 0, None
                self._put(line)
            except OSError as error:
                self._lost += 1
                self._since += 1
                self._error = error.strerror or repr(error)
        return len(text)

    def flush(self) -> None:
        """Nothing is held back."""

    def _put(self, line: bytes) -> None:
        rest = memoryview(b"\n" + line if self._torn else line)
        while rest:
            self._await_room()
            written = os.write(self._fd, rest[:CHUNK_BYTES])
            rest = rest[written:]
            self._torn = bool(rest)

    def _await_room(self) -> None:
        ready = select.poll()
        ready.register(self._fd, select.POLLOUT)
        if not ready.poll(0 if self._since else PATIENCE_MS):
            raise OSError(errno.EAGAIN, "its reader does not read")

    def _confession(self) -> bytes:
        told = {
            "event": "the log could not be written for a while",
            "lost": self._since,
            "error": self._error,
            "level": "warning",
            "timestamp": rfc3339(datetime.now(UTC)),
        }
        return json.dumps(told).encode() + b"\n"


def open_standard_fds() -> None:
    """Have fds 0 to 2 name something: else a file of ours would get the number of stderr."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number is this one


def complain(text: str) -> None:
    """A line for people at the daemon's end, where somebody reads it."""
    LogSink().write(f"engined: {text}\n")


def configure_logging(level: str) -> LogSink:
    """Send structlog's events and the standard library's records the same way."""
    sink = LogSink()
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[
            *shared,
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(file=sink),  # type: ignore[arg-type]
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sink)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                structlog.processors.JSONRenderer(),
            ],
            foreign_pre_chain=shared,
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(_LEVELS[level], logging.INFO))
    return sink
