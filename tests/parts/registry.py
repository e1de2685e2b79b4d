"""A registry of one image on the loopback, which dockerd takes without TLS from there.

It can be slow, lack the image's layer, and tells when somebody hung up in the middle of it.
"""

import gzip
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PIECES = 40
_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
_CONFIG = "application/vnd.docker.container.image.v1+json"
_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"


class Registry:
    """Every name and tag in it is the same image: one layer, and what it runs."""

    def __init__(self, root: bytes, config: dict[str, Any]) -> None:
        """``root`` is a tar."""
        self.slow_s = 0.0
        """How long the layer takes."""
        self.torn = False
        """The manifest names a layer that is not there."""
        self.asked_layer = threading.Event()
        self.hung_up = threading.Event()
        layer = gzip.compress(root, mtime=0)
        made = {
            "architecture": "amd64",
            "os": "linux",
            "config": config,
            "rootfs": {"type": "layers", "diff_ids": [_digest(root)]},
        }
        about = json.dumps(made).encode()
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": {"mediaType": _CONFIG, "size": len(about), "digest": _digest(about)},
            "layers": [{"mediaType": _LAYER, "size": len(layer), "digest": _digest(layer)}],
        }
        self.manifest = json.dumps(manifest).encode()
        self.layer = _digest(layer)
        self.blobs = {_digest(about): about, self.layer: layer}
        self.port = 0

    def image(self, tag: str) -> str:
        return f"127.0.0.1:{self.port}/test/pulled:{tag}"


@contextmanager
def serving(registry: Registry) -> Iterator[Registry]:
    stopping = threading.Event()

    class Answer(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
            """Nothing."""

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            *_, kind, name = self.path.rstrip("/").split("/")
            if kind == "manifests":
                self._give(registry.manifest, _MANIFEST)
            elif kind != "blobs":
                self._give(b"{}", "application/json")
            elif name == registry.layer and registry.torn:
                self.send_error(404)
            elif name in registry.blobs:
                self._give(registry.blobs[name], "application/octet-stream", name)
            else:
                self.send_error(404)

        def _give(self, data: bytes, type_: str, name: str = "") -> None:
            self.send_response(200)
            self.send_header("Content-Type", type_)
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Docker-Content-Digest", name or _digest(data))
            self.end_headers()
            if self.command == "HEAD":
                return
            slow_s = registry.slow_s if name == registry.layer else 0
            if name == registry.layer:
                registry.asked_layer.set()
            step = len(data) if not slow_s else -(-len(data) // PIECES)
            try:
                for at in range(0, len(data), step):
                    stopping.wait(slow_s / PIECES)
                    self.wfile.write(data[at : at + step])
            except OSError:
                registry.hung_up.set()
                self.close_connection = True

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    server.daemon_threads = True
    registry.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield registry
    finally:
        stopping.set()
        server.shutdown()
        server.server_close()
        thread.join()


def _digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()
