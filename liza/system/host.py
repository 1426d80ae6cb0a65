"""Which of the two implementations of `platform` serves this process."""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from liza.system.platform import Platform

FORCE_PORTABLE: Final = "LIZA_PORTABLE"  # set to 1, Linux is used as if it were any other system; for tests


@cache
def host() -> Platform:
    """Return the operating system that we run on."""
    if sys.platform == "linux" and os.environ.get(FORCE_PORTABLE) != "1":
        from liza.system import linux  # noqa: PLC0415 - one of the two is loaded, and psutil only with the other

        return linux
    from liza.system import portable  # noqa: PLC0415 - as above

    return portable
