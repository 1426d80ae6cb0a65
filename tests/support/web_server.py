"""`liza web` as a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.support.shell import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def page_of(root: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str, int, str]]:
    """Yield the server of the page with its host, port and token."""
    words = [sys.executable, "-m", "liza", "-C", str(root), "web", "--port", "0", *options]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=ROOT) as server:
        assert server.stdout is not None
        found = re.fullmatch(r"https?://(127\.0\.0\.1):(\d+)/\?token=(\S+)\n", server.stdout.readline())
        assert found
        try:
            yield server, found[1], int(found[2]), found[3]
        finally:  # else a test that fails would wait for a server that nobody ends
            server.kill()
