"""The last second: Python waits at its exit for every thread, and one that hangs never comes.

By then all that an end is for was done: the journal is written, the socket and the lock are let
go. So the process gives its threads a moment, and then ends without them.
"""

import os
import sys
import threading
import time
from contextlib import suppress

import structlog

GRACE_S = 1.0

log = structlog.get_logger(__name__)


def end_within(grace_s: float, code: int) -> None:
    """The process ends with ``code`` by then, whatever its threads do. Returns at once.

    The thread that sees to it is none that is waited for: where nothing hangs it ends with the
    process, and nobody waited.
    """
    threading.Thread(target=_end, args=(grace_s, code), name="last-second", daemon=True).start()


def _end(grace_s: float, code: int) -> None:
    time.sleep(grace_s)
    here, main = threading.current_thread(), threading.main_thread()
    left = [it.name for it in threading.enumerate() if it not in (here, main) and not it.daemon]
    if left:
        log.warning("ending although threads hang", threads=left)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
