"""Many subscribers in one process: how late events reach them, while one of them does not read.

``readers.py SOCKET COUNT STALLED EVENTS``. An event's ``detail`` is the moment of its publication.
Prints ``ready`` when all have subscribed, then, once each reader has had so many events, the lags
in nanoseconds as JSON. The stalled ones
subscribe to everything and never read.
"""

import json
import re
import resource
import select
import socket
import sys
import time

SUBSCRIBE = b'{"jsonrpc":"2.0","id":1,"method":"event.subscribe","params":{"kinds":[%s]}}\n'
DETAIL = re.compile(rb'"detail":"(\d+)"')
PATIENCE_S = 30.0


def subscribe(path: str, kinds: bytes) -> socket.socket:
    link = socket.socket(socket.AF_UNIX)
    link.connect(path)
    link.sendall(SUBSCRIBE % kinds)
    if b"result" not in link.recv(4096):
        raise SystemExit("no subscription")
    return link


def main() -> None:
    path, count, stalled, events = sys.argv[1], *map(int, sys.argv[2:])
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    idle = [subscribe(path, b"") for _ in range(stalled)]
    readers = {link.fileno(): link for link in (subscribe(path, b'"phase"') for _ in range(count))}
    poll = select.epoll()
    for number in readers:
        poll.register(number, select.EPOLLIN)
    print("ready", flush=True)
    lags: list[int] = []
    ends = time.monotonic() + PATIENCE_S
    while len(lags) < count * events and time.monotonic() < ends:
        for number, _ in poll.poll(1.0):
            data = readers[number].recv(1 << 16)
            now = time.monotonic_ns()
            if not data:
                poll.unregister(number)
            lags += (now - int(at) for at in DETAIL.findall(data))
    print(json.dumps(lags), flush=True)
    for link in idle:
        link.close()


if __name__ == "__main__":
    main()
