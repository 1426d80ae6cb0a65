"""Text that programs and agents print, made safe to show on a terminal."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, Final, TextIO, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


# The one door for text that people read on a terminal: what would act or hide there is written out.
#
# Agents choose names, reasons and summaries. A terminal obeys escape sequences in them, and signs that turn
# the direction of text show another line than the one that is there.

# Controls but for tab and line feed, C1, what separates lines unseen, what turns text, tags, halves of pairs.
_UNSAFE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028\u2029\u202a-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)


def escape_unsafe(text: str) -> str:
    """Return *text* with every sign that would act on a terminal written out, such as `\\x1b`."""
    return _UNSAFE.sub(lambda found: _escape_code(ord(found[0])), text)


def _escape_code(code: int) -> str:
    if code < 0x100:  # noqa: PLR2004 - one byte
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"  # noqa: PLR2004 - two bytes


class UnwritableOutput(OSError):
    """What a stream leads to takes nothing, as a file on a full disk."""


class VisibleStream:
    """A stream through which only visible text gets; *stream* is what it leads to."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        with _own_failure():
            return self.stream.write(escape_unsafe(text))

    def flush(self) -> None:
        with _own_failure():
            self.stream.flush()

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a stream has
        return getattr(self.stream, name)


@contextmanager
def _own_failure() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UnwritableOutput(*error.args) from error


def visible_stream(stream: IO[str]) -> TextIO:
    """Return *stream* as one through which only visible text gets."""
    return cast(
        "TextIO", stream if isinstance(stream, VisibleStream) else VisibleStream(cast("TextIO", stream))
    )


def takes_colour(stream: IO[str], environment: Mapping[str, str]) -> bool:
    """Return whether whoever reads *stream* wants colours: a terminal that has some, and no NO_COLOR."""
    return stream.isatty() and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"


def raw_stream(stream: TextIO) -> TextIO:
    """Return what *stream* leads to, for whoever draws and sees to it that the text is visible."""
    return stream.stream if isinstance(stream, VisibleStream) else stream
