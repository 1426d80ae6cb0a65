"""Python's own parser, one thread at a time.

CPython counts the depth of a tree once for all threads while it builds one, so that two threads that parse
at once end each other with `SystemError: AST constructor recursion depth mismatch` (seen with 3.11.7).
"""

import ast
from threading import Lock
from typing import Final

_PARSER_LOCK: Final = Lock()


def parse_python(text: str) -> ast.Module:
    """Return the tree of *text*, as `ast.parse` does."""
    with _PARSER_LOCK:
        return ast.parse(text)
