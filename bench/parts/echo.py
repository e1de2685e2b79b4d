"""The control of an RPC: an asyncio server that answers every line with one and the same line.

``echo.py SOCKET SIZE``: no parsing, no dispatch, a reply of ``SIZE`` bytes. What a call costs
beyond this is ours.
"""

import asyncio
import sys


class Echo(asyncio.Protocol):
    reply = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(self.reply * data.count(b"\n"))


async def main() -> None:
    Echo.reply = b"x" * (int(sys.argv[2]) - 1) + b"\n"
    server = await asyncio.get_running_loop().create_unix_server(Echo, sys.argv[1])
    print("serving", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
