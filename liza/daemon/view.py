"""What the supervisor tells its view; `liza.cli.views.screen` has the views there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from liza.domain.model import State


class View(Protocol):
    def say(self, sentence: str) -> None:
        """Tell one thing, once."""

    def show(self, state: State, switches: Mapping[str, str]) -> None:
        """Show the board as it is now."""
