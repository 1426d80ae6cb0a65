"""A listener that passes each connection on to a socket of the file system: `relay.py ADDRESS PORT PATH`."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress


async def main(address: str, port: str, path: str) -> None:
    async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(1 << 16):
                target.write(data)
                await target.drain()
        with suppress(OSError):
            target.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
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
