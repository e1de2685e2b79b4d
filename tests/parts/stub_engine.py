"""An engine that is none: one small HTTP program with a knob for everything engines do wrong.

It imports little, so that it starts fast, and takes any flag that a real engine takes. A knob is
a flag `--stub-NAME VALUE` (or `=VALUE`, or alone for 1), else a variable `STUB_NAME`, else what
the wrapper of `tests.parts.stub` was written with, else the default below. Everything that it
starts ends by itself after `life` seconds, whatever becomes of the test.
"""

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping

KNOBS = {
    "announce": "",  # unix datagram socket or file that is told "PID MONOTONIC_NS" first of all
    "mask-of-ints": "",  # a variable whose entries have to be numbers, as for vLLM before 0.24
    "dump": "",  # file that gets argv, env, descriptors and more, as JSON
    "up": "",  # file that appears once signals are handled and children run
    "say": "",  # printed to stderr at the start; escapes such as \n and \x1b are understood
    "output": "",  # kinds joined by comma: long-line, cr-only, bars, invalid-utf8
    "drip": "0",  # seconds between lines of progress that it writes while it loads
    "drip-for": "600",  # and for how long it does so
    "flood": "0",  # bytes of log lines at the start
    "load": "0",  # seconds until the model is "loaded"
    "loading": "503",  # meanwhile: 503, 200 (body says loading), refuse (does not listen), silent
    "health": "ok",  # afterwards: ok, 503, loading, redirect, endless, slow, hostile, silent, never
    "think": "0",  # seconds before it answers on its health path
    "body": '{"status": "ok"}',  # of a healthy answer
    "metrics": "",  # text that /metrics answers with
    "http10": "",  # HTTP/1.0, closing at once
    "reuse-port": "",  # bind with SO_REUSEPORT
    "tls": "",  # folder of key.pem and cert.pem: it speaks TLS, and nothing else
    "defer-accept": "",  # never accept: the kernel alone answers a connect
    "exit-after": "",  # seconds until the end, counted from the start
    "exit-code": "0",
    "exit-by": "",  # a signal's name or number to die by instead
    "on-term": "exit",  # exit, ignore, drain (the second TERM ends it with 1), default; or a code
    "term-delay": "0",  # seconds between TERM and the exit
    "children": "",  # joined by comma, each of words joined by +: session, detached, deaf, erased
    "children-file": "",  # gets the children's pids, one a line
    "life": "600",
}


class Stub:
    """The knobs, and what of the engine they leave."""

    def __init__(self, argv: list[str], env: Mapping[str, str], presets: dict[str, str]) -> None:
        self.knobs = KNOBS | presets
        self.knobs |= {name: env[key] for name in KNOBS if (key := "STUB_" + variable(name)) in env}
        self.host, self.port = "127.0.0.1", 8080
        words = list(argv)
        while words:
            flag, equals, value = words.pop(0).partition("=")
            name = flag.removeprefix("--stub-")
            if flag not in ("--host", "--port") and (name == flag or name not in KNOBS):
                continue
            if not equals:
                value = words.pop(0) if words and not words[0].startswith("--") else "1"
            if flag == "--host":
                self.host = value
            elif flag == "--port":
                self.port = int(value)
            else:
                self.knobs[name] = value
        self.began = time.monotonic()
        self.busy = 0
        self.terms = 0

    def __getitem__(self, name: str) -> str:
        return self.knobs[name]

    def seconds(self, name: str) -> float:
        return float(self[name] or 0)

    @property
    def loaded(self) -> bool:
        return time.monotonic() - self.began >= self.seconds("load")

    def run(self) -> None:
        announce(self["announce"])
        signal.alarm(int(self["life"]))
        self.answer_term()
        if self["dump"]:
            dump(self["dump"])
        if name := self["mask-of-ints"]:
            [int(entry) for entry in os.environ[name].split(",")]
        pids = [self.bear(set(words.split("+"))) for words in self["children"].split(",") if words]
        if self["children-file"]:
            write_whole(self["children-file"], "".join(f"{pid}\n" for pid in pids))
        if self["up"]:
            write_whole(self["up"], "")
        self.talk()
        if self.seconds("drip"):
            threading.Thread(target=self.drip, daemon=True).start()
        if self["exit-after"]:
            threading.Thread(target=self.expire, daemon=True).start()
        if self["health"] == "never":
            while True:
                signal.pause()
        if self["loading"] == "refuse":
            time.sleep(self.seconds("load"))
        self.serve()

    # Ends

    def answer_term(self) -> None:
        if self["on-term"] == "ignore":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        elif self["on-term"] != "default":
            signal.signal(signal.SIGTERM, self.on_term)

    def on_term(self, *_: object) -> None:
        self.terms += 1
        if self["on-term"] == "drain":
            if self.terms > 1:
                os._exit(1)
            threading.Thread(target=self.drain, daemon=True).start()
            return
        time.sleep(self.seconds("term-delay"))
        os._exit(int(self["on-term"]) if self["on-term"].isdigit() else 0)

    def drain(self) -> None:
        while self.busy:
            time.sleep(0.01)
        os._exit(0)

    def expire(self) -> None:
        time.sleep(self.seconds("exit-after"))
        if name := self["exit-by"]:
            number = int(name) if name.isdigit() else getattr(signal, name)
            os.kill(os.getpid(), number)
            time.sleep(5)
        os._exit(int(self["exit-code"]))

    # Children

    def bear(self, words: set[str]) -> int:
        """Fork a child that sleeps, and return its pid once it is what it is to be."""
        hear, tell = os.pipe()
        child = os.fork()
        if child:
            os.close(tell)
            if "detached" in words:
                os.waitpid(child, 0)
            pid = int(os.read(hear, 20))
            os.close(hear)
            return pid
        os.close(hear)
        if "detached" in words:
            os.setsid()
            if os.fork():
                os._exit(0)
        signal.signal(signal.SIGTERM, signal.SIG_IGN if "deaf" in words else signal.SIG_DFL)
        signal.alarm(int(self["life"]))
        if "erased" in words:
            erase_title("VLLM::Worker")
        os.write(tell, str(os.getpid()).encode())
        os.close(tell)
        while True:
            signal.pause()

    # Output

    def talk(self) -> None:
        if self["say"]:
            os.write(2, self["say"].encode().decode("unicode_escape").encode() + b"\n")
        for kind in self["output"].split(","):
            if kind == "long-line":
                os.write(1, b"x" * 300_000 + b"\n")
            elif kind == "cr-only":
                for percent in range(0, 100, 2):
                    os.write(2, b"loading %d%%\r" % percent)
            elif kind == "bars":
                for first in range(0, 20_000, 100):
                    updates = range(first, first + 100)
                    os.write(2, b"".join(b"loading %5d/20000\r" % update for update in updates))
            elif kind == "invalid-utf8":
                os.write(2, b"\xff\xfe caf\xc3 \xf0\x9f\x98\n")
        line = b"stub: one line of a flood of lines that somebody has to keep bounded\n"
        left = int(self["flood"])
        while left > 0:
            left -= os.write(1, line * min(1000, left // len(line) + 1))

    def drip(self) -> None:
        number = 0
        while not self.loaded and time.monotonic() - self.began < self.seconds("drip-for"):
            number += 1
            os.write(2, b"\rload_tensors: loading model tensors %d%% | %d/100" % (number, number))
            time.sleep(self.seconds("drip"))

    # HTTP

    def serve(self) -> None:
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        listener = socket.socket(family)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if self["reuse-port"]:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            listener.bind((self.host, self.port))
        except OSError as error:
            log(f"cannot bind {self.host}:{self.port}: {error}")
            os._exit(1)
        listener.listen(128)
        log(f"listening on {self.host}:{self.port}")
        if self["defer-accept"]:
            while True:
                signal.pause()
        while True:
            client, _ = listener.accept()
            threading.Thread(target=self.talk_to, args=(client,), daemon=True).start()

    def talk_to(self, client: socket.socket) -> None:
        if self["tls"]:
            import ssl

            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(f"{self['tls']}/cert.pem", f"{self['tls']}/key.pem")
            try:
                client = context.wrap_socket(client, server_side=True)
            except OSError:
                return
        with client:
            try:
                pending = b""
                while True:
                    while b"\r\n\r\n" not in pending:
                        part = client.recv(65536)
                        if not part:
                            return
                        pending += part
                    head, _, pending = pending.partition(b"\r\n\r\n")
                    for line in head.lower().split(b"\r\n"):
                        if line.startswith(b"content-length:"):
                            size = int(line.split(b":")[1])
                            while len(pending) < size:
                                pending += client.recv(65536)
                            pending = pending[size:]
                    log(head.split(b"\r\n")[0].decode(errors="replace"))
                    self.busy += 1
                    try:
                        keep = self.answer(client, head.split(b" ")[1].decode())
                    finally:
                        self.busy -= 1
                    if not keep:
                        return
            except (OSError, ValueError):
                return

    def answer(self, client: socket.socket, path: str) -> bool:
        """Send a reply; whether the connection stays."""
        if not self.loaded:
            mode = {"200": "loading"}.get(self["loading"], self["loading"])
        else:
            mode = self["health"]
        if path == "/real":
            mode = "ok"
        if path.startswith("/hold"):  # a client that is served until it leaves
            client.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            while client.recv(1):
                pass
            return False
        if path == "/health":
            time.sleep(self.seconds("think"))
        if mode == "silent":
            while client.recv(65536):
                pass
            return False
        if mode == "slow":
            for byte in b"HTTP/1.1 200 OK\r\nX-Slow: " + b"y" * 10_000:
                client.sendall(bytes([byte]))
                time.sleep(1)
            return False
        if mode == "hostile":
            client.sendall(b"HTTP/1.1 200 \x1b[31m\x1b]0;own\x07" + b"A" * 5000 + b"\r\n\r\n")
            return False
        if mode == "redirect":
            return self.reply(client, "302 Found", "", "Location: /real\r\n")
        if mode == "endless":
            client.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            while True:
                client.sendall(b"10000\r\n" + b"z" * 65536 + b"\r\n")
        if mode == "503":
            return self.reply(client, "503 Service Unavailable", LOADING_ERROR)
        if mode == "loading":
            return self.reply(client, "200 OK", '{"status": "loading"}')
        if path == "/metrics":
            return self.reply(client, "200 OK", self["metrics"])
        return self.reply(client, "200 OK", self["body"])

    def reply(self, client: socket.socket, status: str, body: str, extra: str = "") -> bool:
        version, connection = ("1.0", "close") if self["http10"] else ("1.1", "keep-alive")
        data = body.encode()
        head = (
            f"HTTP/{version} {status}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\nConnection: {connection}\r\n{extra}\r\n"
        )
        client.sendall(head.encode() + data)
        return not self["http10"]


LOADING_ERROR = '{"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}}'


def log(text: str) -> None:
    os.write(2, f"stub: {text}\n".encode())


def read(path: str) -> str:
    with open(path) as file:
        return file.read()


def variable(name: str) -> str:
    return name.upper().replace("-", "_")


def announce(place: str) -> None:
    if not place:
        return
    text = f"{os.getpid()} {time.monotonic_ns()}\n".encode()
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link:
            link.sendto(text, place)
    except OSError:
        with open(place, "ab", buffering=0) as file:
            file.write(text)


def erase_title(title: str) -> None:
    """What a rewritten title does: it lies over the arguments and wipes the environment."""
    fields = read("/proc/self/stat").rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[48])  # arg_start and env_end
    with open("/proc/self/mem", "wb", buffering=0) as memory:
        memory.seek(start)
        memory.write(title.encode().ljust(end - start, b"\0"))
    with open("/proc/self/comm", "w") as comm:
        comm.write(title)


def dump(path: str) -> None:
    import json

    mask = os.umask(0o077)
    os.umask(mask)
    status = dict(
        line.split(":", 1) for line in read("/proc/self/status").splitlines() if ":" in line
    )
    fds = {}
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            fds[int(descriptor)] = os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:
            continue
    facts = {
        "pid": os.getpid(),
        "ppid": os.getppid(),
        "pgid": os.getpgid(0),
        "sid": os.getsid(0),
        "argv": sys.argv,
        "env": dict(os.environ),
        "cwd": os.getcwd(),
        "path": sys.path,
        "umask": mask,
        "fds": fds,
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "policy": os.sched_getscheduler(0),
        "oom_score_adj": int(read("/proc/self/oom_score_adj")),
        "limits": read("/proc/self/limits"),
        "status": {key: value.strip() for key, value in status.items()},
    }
    write_whole(path, json.dumps(facts))


def write_whole(path: str, text: str) -> None:
    """So that whoever sees the file sees all of it."""
    with open(path + ".part", "w") as file:
        file.write(text)
    os.replace(path + ".part", path)


def main(presets: dict[str, str] | None = None) -> None:
    if {"--help", "--version"} & set(sys.argv[1:]):
        os.write(1, f"stub engine 1.0\nknobs: --stub-{' --stub-'.join(KNOBS)}\n".encode())
        return
    Stub(sys.argv[1:], os.environ, presets or {}).run()


if __name__ == "__main__":
    main()
