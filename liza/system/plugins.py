"""Registries: named parts of one kind, from Liza itself and from installed packages, imported when named.

A package adds a part as an entry point of the registry's group. Nothing of it is imported before somebody
asks for that very name, so that what is installed costs nobody who does not use it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeVar

from liza.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from importlib.metadata import EntryPoint

T = TypeVar("T")


class Registry(dict[str, T]):
    """The parts of one kind by name; each is an object, or the `module:name` where one is found.

    As a dict it holds what was imported so far, and imports what is asked for; `names` has every name.
    """

    def __init__(
        self, group: str, what: str, own: Mapping[str, T | str], expects: type | None = None
    ) -> None:
        super().__init__({name: part for name, part in own.items() if not isinstance(part, str)})
        self.group: Final = group
        self._what = what
        self._expects = expects
        self._own = dict(own)

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in _entry_points(self.group)

    def __missing__(self, name: str) -> T:
        """Return the part called *name*, imported now; raise UsageError if nobody has it."""
        # What comes with Liza is not replaced by what happens to be installed.
        found = self._own.get(name)
        self[name] = part = self._load_own(found) if isinstance(found, str) else self._load_added(name)
        return part

    def added(self) -> list[str]:
        """Return the names that packages add; none of it is imported."""
        return sorted(_entry_points(self.group).keys() - self._own.keys())

    def names(self) -> list[str]:
        """Return every name; it reads what is installed, and imports none of it."""
        return [*self._own, *self.added()]

    def unknown(self, name: str) -> UsageError:
        """Return the sentence for a name that nobody has."""
        from difflib import get_close_matches  # noqa: PLC0415 - `liza status` need not wait for it

        names = self.names()
        near = get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        return UsageError(f"there is no {self._what} {name!r}; {hint}known: {', '.join(names)}")

    def _load_own(self, place: str) -> T:
        module, _, attribute = place.partition(":")
        loaded = import_module(module)
        part: T = getattr(loaded, attribute) if attribute else loaded  # type: ignore[assignment]
        return part

    def _load_added(self, name: str) -> T:
        found = _entry_points(self.group).get(name, [])
        if not found:
            raise self.unknown(name)
        if len(found) > 1:
            packages = " and ".join(sorted(map(_package_of, found)))
            raise UsageError(f"{packages} both have a {self._what} {name!r}; uninstall one of them")
        try:
            part: T = found[0].load()
        except (ImportError, AttributeError) as error:
            raise UsageError(
                f"the {self._what} {name!r} of {_package_of(found[0])} cannot be loaded: {error}; "
                "mend that package, or use another"
            ) from error
        if self._expects and not isinstance(part, self._expects):
            said = f"the {self._what} {name!r} of {_package_of(found[0])} is no {self._expects.__name__}"
            raise UsageError(f"{said}; mend that package, or use another")
        return part


def _entry_points(group: str) -> dict[str, list[EntryPoint]]:
    from importlib.metadata import entry_points  # noqa: PLC0415 - most ask for what comes with Liza

    found: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=group):
        # A package may be found twice on the path, which is one package still.
        others = found.setdefault(point.name, [])
        if not any(one.value == point.value for one in others):
            others.append(point)
    return found


def _package_of(point: EntryPoint) -> str:
    dist: Any = point.dist
    return str(dist.name) if dist else point.value
