"""A server process: answers every request alike, or with 503 until a moment has come.

Arguments: the answer in hex, a port, whether to share it, seconds until the answer is given (-1:
at once). Prints its port, and the monotonic nanosecond of the flip when it comes. Ends with stdin.
"""

import os
import socket
import sys
import threading
import time

UNAVAILABLE = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 7\r\n\r\nLoading"


def main() -> None:
    answer, port, shares, flips = sys.argv[1:]
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shares == "1":
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind(("127.0.0.1", int(port)))
    listener.listen(64)
    ready = [bytes.fromhex(answer) if float(flips) < 0 else UNAVAILABLE]
    say(listener.getsockname()[1])
    threading.Thread(target=accept_all, args=(listener, ready), daemon=True).start()
    if float(flips) >= 0:
        time.sleep(float(flips))
        ready[0] = bytes.fromhex(answer)
        say(time.monotonic_ns())
    sys.stdin.read()
    os._exit(0)


def say(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


def accept_all(listener: socket.socket, ready: list[bytes]) -> None:
    while True:
        conn, _ = listener.accept()
        threading.Thread(target=serve, args=(conn, ready), daemon=True).start()


def serve(conn: socket.socket, ready: list[bytes]) -> None:
    try:
        while True:
            got = b""
            while b"\r\n\r\n" not in got:
                chunk = conn.recv(65536)
                if not chunk:
                    return
                got += chunk
            conn.sendall(ready[0])
    except OSError:
        return
    finally:
        conn.close()


if __name__ == "__main__":
    main()
