"""A listener that passes each connection on to a socket of the file system: `relay.py ADDRESS PORT PATH`."""

from __future__ import annotations

import asyncio
import socket
import sys
from contextlib import suppress

# As Liza asks the server to notice a peer that is cut off: the server has another socket, behind this one.
KEEPALIVE = {
    socket.TCP_KEEPIDLE: 5,
    socket.TCP_KEEPINTVL: 2,
    socket.TCP_KEEPCNT: 3,
    socket.TCP_USER_TIMEOUT: 10000,
}


async def main(address: str, port: str, path: str) -> None:
    async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(1 << 16):
                target.write(data)
                await target.drain()
        with suppress(OSError):
            target.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted = writer.get_extra_info("socket")
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in KEEPALIVE.items():
            accepted.setsockopt(socket.IPPROTO_TCP, option, value)
        try:
            there, back = await asyncio.open_unix_connection(path)
        except OSError:  # the server is away
            writer.close()
            return
        await asyncio.gather(pump(reader, back), pump(there, writer))

    async with await asyncio.start_server(serve, address, int(port)) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))
