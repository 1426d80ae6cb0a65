"""The machines that share a board: who offers what, who leads, and how far each is from the board."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from liza.board.protocol import HostSign

LONGEST_SILENCE: Final = 10.0  # seconds after which a host that says nothing is told to be silent
LARGEST_SKEW: Final = 2.0  # seconds that a clock may be off before it is worth a word
LARGEST_LATENCY: Final = 0.25  # seconds to the board and back that are worth a word


class HostView(NamedTuple):
    name: str
    is_alive: bool
    leads: bool
    slots: dict[str, int]
    labels: tuple[str, ...]
    version: str
    git: str
    latency: float | None  # seconds to the board and back
    skew: float | None  # seconds that its clock is ahead of the board's
    silent: float  # seconds since its last sign of life

    @property
    def concerns(self) -> tuple[str, ...]:
        """What a person should look at."""
        found = []
        if not self.is_alive:
            found.append(f"has said nothing for {self.silent:.0f} s")
        if self.skew is not None and abs(self.skew) > LARGEST_SKEW:
            how = "ahead of" if self.skew > 0 else "behind"
            found.append(f"its clock is {abs(self.skew):.0f} s {how} the board's")
        if self.latency is not None and self.latency > LARGEST_LATENCY:
            found.append(f"the board takes {1000 * self.latency:.0f} ms to answer it")
        return tuple(found)

    def __str__(self) -> str:
        slots = ", ".join(f"{count} {role}" for role, count in self.slots.items()) or "no slots"
        parts = [slots, *(f"[{label}]" for label in self.labels)]
        parts += [f"{1000 * self.latency:.0f} ms"] if self.latency is not None else []
        lead = " leads," if self.leads and self.is_alive else ""
        return f"{self.name}:{lead} {' '.join(parts)}{''.join(f'; {one}' for one in self.concerns)}"


def host_views(signs: Iterable[HostSign]) -> tuple[HostView, ...]:
    """Return the hosts as they are shown; none on one machine."""
    return tuple(_view(sign) for sign in signs)


def _view(sign: HostSign) -> HostView:
    facts = sign.facts
    return HostView(
        name=sign.name,
        is_alive=sign.is_live and sign.silent < LONGEST_SILENCE,
        leads=bool(facts.get("leads")),
        slots={str(role): int(count) for role, count in (facts.get("slots") or {}).items()},
        labels=tuple(map(str, facts.get("labels") or ())),
        version=str(facts.get("version", "")),
        git=str(facts.get("git", "")),
        latency=facts.get("latency"),
        skew=facts.get("skew"),
        silent=sign.silent,
    )
