"""Sends the time to a datagram socket every millisecond. Run by a bare interpreter, until killed.

A loop's own timer cannot tell how late the loop is to the tenth of a millisecond: epoll rounds its
wait up to whole ones. A datagram from outside arrives as a client's request does.
"""

import socket
import sys
import time


def main() -> None:
    link = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    link.connect(sys.argv[1])
    while True:
        time.sleep(0.001)
        try:
            link.send(b"%d" % time.monotonic_ns())
        except OSError:
            return


if __name__ == "__main__":
    main()
