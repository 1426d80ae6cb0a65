"""The version of the board: another one is read by another Liza."""

from typing import Final

VERSION: Final = 2
