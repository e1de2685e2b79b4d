"""Launch an engine, hear what becomes of it, ask its log, stop it: the typed client in a page.

    python examples/client.py /path/to/model.gguf /path/to/llama-server

Needs a running daemon, whose socket is found as `enginectl` finds it.
"""

import os
import sys

import msgspec

from supervisor.client import Client, ClientError, RpcError
from supervisor.contracts.event import Event, Stopped
from supervisor.contracts.instance import LaunchParams
from supervisor.contracts.paths import default_socket
from supervisor.contracts.rpc import StopParams, SubscribeParams

NAME = "example"


def main(model: str, binary: str) -> None:
    """Raises ``ClientError`` where the daemon cannot be had, or refuses."""
    path = default_socket(os.environ)
    # Two connections: one asks, the other one listens.
    with Client(path) as client, Client(path) as listener:
        events = listener.subscribe(SubscribeParams(instances=(NAME,)))
        params = LaunchParams(name=NAME, engine="llamacpp", model_path=model, binary=binary)
        try:
            view = client.launch(params)  # returns once the engine is proved ready
        except RpcError as error:
            if error.failure is not None:  # typed: its kind, code, log's end and diagnosis
                print("failed:", msgspec.json.encode(error.failure).decode())
            raise
        print(f"ready at http://127.0.0.1:{view.record.port}, on {', '.join(view.record.devices)}")
        print(*client.logs(NAME, lines=3).lines, sep="\n")
        client.stop(StopParams(name=NAME))
        for line in listener.events(events.subscription):
            event = msgspec.json.decode(line, type=Event)
            print(line.decode())
            if isinstance(event, Stopped):
                return


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except ClientError as error:
        sys.exit(f"{error}")
