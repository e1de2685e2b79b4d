"""Subscribes to circus and passes deaths on, with the moment it heard of each.

``circus_listener.py COMMANDS PUBSUB SOCKET COUNT``. It first prints the pids of all watchers as
JSON, once they run. Runs in the peers' interpreter, where circus and zmq are.
"""

import json
import socket
import sys
import time
from typing import Any


def main() -> None:
    import zmq  # type: ignore[import-not-found, unused-ignore]
    from circus.client import CircusClient  # type: ignore[import-not-found, unused-ignore]

    commands, published, news, count = sys.argv[1:]
    hub: Any = zmq.Context.instance().socket(zmq.SUB)
    hub.setsockopt(zmq.SUBSCRIBE, b"watcher.")
    hub.connect(published)
    client: Any = CircusClient(endpoint=commands, timeout=30)
    while client.call({"command": "numprocesses"}).get("numprocesses") != int(count):
        time.sleep(0.1)
    names = client.call({"command": "list"})["watchers"]
    pids = {
        name: client.call({"command": "list", "properties": {"name": name}})["pids"][0]
        for name in names
    }
    print(json.dumps(pids), flush=True)
    link = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    while True:
        topic = hub.recv_multipart()[0].decode()
        heard = time.monotonic_ns()
        _, name, happened = topic.split(".", 2)
        if happened == "reap":
            link.sendto(f"{name} {heard}".encode(), news)


if __name__ == "__main__":
    main()
