"""Kills processes and says when the kernel showed that they had died. Run by a bare interpreter.

In a process of its own: on a thread of the bench it would wait for the interpreter's lock, which
the very code that is measured holds at that moment. It reads a pid a line, and writes a line of
pid, moment before the signal, moment at which the pidfd was readable.
"""

import os
import select
import signal
import sys
import time


def main() -> None:
    for line in sys.stdin:
        pid = int(line)
        pidfd = os.pidfd_open(pid)
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        killed = time.monotonic_ns()
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        poll.poll()
        seen = time.monotonic_ns()
        os.close(pidfd)
        sys.stdout.write(f"{pid} {killed} {seen}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
