"""supervisord starts this as its event listener. It passes deaths on, with the moment it heard.

``supervisord_listener.py SOCKET``. Runs in the peers' interpreter, with the standard library only.
"""

import socket
import sys
import time

ENDED = ("PROCESS_STATE_EXITED", "PROCESS_STATE_BACKOFF")


def main() -> None:
    link = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    while True:
        sys.stdout.write("READY\n")
        sys.stdout.flush()
        line = sys.stdin.readline()
        if not line:
            return
        header = dict(word.split(":") for word in line.split())
        body = sys.stdin.read(int(header["len"]))
        heard = time.monotonic_ns()
        if header["eventname"] in ENDED:
            name = dict(word.split(":") for word in body.split())["processname"]
            link.sendto(f"{name} {heard}".encode(), sys.argv[1])
        sys.stdout.write("RESULT 2\nOK")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
