"""Listens to the event directories of s6's services and passes deaths on, with the moment.

``s6_listener.py SCAN SOCKET COUNT``. It first prints the pids of all services as JSON, once they
run. Run by a bare interpreter. A supervisor writes a ``d`` into every FIFO of that name in a
service's event directory when the service has died.
"""

import json
import os
import select
import socket
import struct
import sys
import time

DIED = (b"d", b"D")


def pid_of(service: str) -> int:
    """From the status file; 0 where it does not run."""
    try:
        with open(f"{service}/supervise/status", "rb") as file:
            status = file.read()
    except OSError:
        return 0
    return int(struct.unpack(">Q", status[24:32])[0]) if len(status) >= 35 else 0


def main() -> None:
    scan, news, count = sys.argv[1:]
    poll = select.poll()
    services: dict[int, str] = {}
    pids: dict[str, int] = {}
    for number in range(int(count)):
        name = f"p{number}"
        while not (pid := pid_of(f"{scan}/{name}")):
            time.sleep(0.01)
        pids[name] = pid
        fifo = f"{scan}/{name}/event/ftrig1:@4000000000000000{number:08x}:abcdef"
        os.mkfifo(fifo)
        ear = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
        services[ear] = name
        poll.register(ear, select.POLLIN)
    print(json.dumps(pids), flush=True)
    link = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    while True:
        for ear, _ in poll.poll():
            heard = time.monotonic_ns()
            told = os.read(ear, 64)
            if any(sign in told for sign in DIED):
                link.sendto(f"{services[ear]} {heard}".encode(), news)


if __name__ == "__main__":
    main()
