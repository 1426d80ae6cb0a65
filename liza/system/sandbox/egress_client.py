"""The proxy's end inside the sandbox, run by its path: it listens on loopback, then execs the agent.

`python egress_client.py SOCKET PORT [HOST:PORT …] -- COMMAND …`: connections to PORT go to the proxy
behind SOCKET; connections to one of the other ports are tunnelled to that address. It imports nothing
of Liza.
"""

from __future__ import annotations

import os
import selectors
import socket
import sys
import threading

CHUNK = 1 << 16
GREETING = 4096  # bytes; the longest answer to CONNECT that is waited for


def main(words: list[str]) -> None:
    split = words.index("--")
    (path, port, *others), command = words[:split], words[split + 1 :]
    doors = [(_listen(int(port)), "")]
    doors += [(_listen(int(other.rpartition(":")[2])), other) for other in others]
    if os.fork() == 0:
        _serve(path, doors)
        return
    os.execvp(command[0], command)  # noqa: S606 - the words are a command, and no shell is wanted


def _listen(port: int) -> socket.socket:
    return socket.create_server(("127.0.0.1", port), backlog=64)


def _serve(path: str, doors: list[tuple[socket.socket, str]]) -> None:
    for listener, target in doors[1:]:
        threading.Thread(target=_accept, args=(path, listener, target), daemon=True).start()
    _accept(path, *doors[0])


def _accept(path: str, listener: socket.socket, target: str) -> None:
    while True:
        near, _ = listener.accept()
        threading.Thread(target=_carry, args=(path, near, target), daemon=True).start()


def _carry(path: str, near: socket.socket, target: str) -> None:
    far = socket.socket(socket.AF_UNIX)
    try:
        far.connect(path)
        if not target or _connect_through(far, target):
            relay(near, far)
    except OSError:
        pass  # one of the two left, which is how connections end
    finally:
        near.close()
        far.close()


def _connect_through(far: socket.socket, target: str) -> bool:
    far.sendall(f"CONNECT {target} HTTP/1.1\r\n\r\n".encode())
    answer = b""
    while not answer.endswith(b"\r\n\r\n") and len(answer) < GREETING:
        byte = far.recv(1)
        if not byte:
            return False
        answer += byte
    return b" 200 " in answer.splitlines()[0]


def relay(one: socket.socket, other: socket.socket) -> None:
    """Relay bytes in both directions until both sides are closed."""
    with selectors.DefaultSelector() as selector:
        selector.register(one, selectors.EVENT_READ, (one, other))
        selector.register(other, selectors.EVENT_READ, (other, one))
        while selector.get_map():
            for key, _ in selector.select():
                near, far = key.data
                if data := near.recv(CHUNK):
                    far.sendall(data)
                else:
                    selector.unregister(near)
                    far.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    main(sys.argv[1:])
