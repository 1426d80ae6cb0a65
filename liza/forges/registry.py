"""Every forge by its name.

A package adds one as an entry point of the group `liza.forges` that is a `ForgeType`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from liza.domain.problems import violations_from
from liza.errors import UsageError
from liza.forges.protocol import Forge, ForgeType
from liza.system.plugins import Registry

FORGES: Final[Registry[ForgeType]] = Registry(
    "liza.forges",
    "forge",
    {"github": "liza.forges.github:GITHUB", "local": "liza.forges.local:LOCAL"},
    ForgeType,
)


def open_forge(name: str, options: Mapping[str, Any], root: Path) -> Forge:
    """Return the forge *name* for the checkout at *root*; raise one sentence where *options* are wrong."""
    kind = FORGES[name]
    try:
        told = kind.options.model_validate(dict(options))
    except ValidationError as error:
        raise UsageError(str(violations_from(error, kind.options, f"forge.{name}", {})[0])) from error
    return kind.open(told, root)
