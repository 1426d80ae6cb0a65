"""Processes of their own for whoever writes or watches a board, each with a line to whoever started it."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Concatenate, Final, ParamSpec

# The server imports once what its children need, and it never had a board open. Thirty-two interpreters
# that each import pydantic would take longer to start than the race that they run lasts.
PRELOADED: Final = "scripts.benchmark.rivals"

P = ParamSpec("P")


@contextmanager
def child(
    target: Callable[Concatenate[Connection, P], None], *args: P.args, **kwargs: P.kwargs
) -> Iterator[Connection]:
    """Run *target* in a fresh process, and yield the line to it; wait for its end on leaving."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([PRELOADED])
    ours, theirs = context.Pipe()
    process = context.Process(target=target, args=(theirs, *args), kwargs=kwargs, daemon=True)
    process.start()
    theirs.close()  # so that a child that dies is an end of file here, and not a wait for ever
    with ours:
        yield ours
    process.join()
