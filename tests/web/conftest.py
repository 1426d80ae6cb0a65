"""The browser is driven by selenium, which `make test-web` installs and `make test` does without."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

collect_ignore_glob: Final = () if find_spec("selenium") else ("test_*.py",)
