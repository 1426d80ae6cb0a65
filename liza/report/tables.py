"""The tables in specs/, rendered from the tables in the code, so that the two cannot disagree.

A file in specs/ says where a table belongs by a pair of comments, `<!-- rendered: NAME -->` and
`<!-- end -->`; what stands between them is replaced by `python -m liza.report.tables specs`.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections import defaultdict
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

from liza import model
from liza.agents.clis.table import CLIS
from liza.anomalies import Details
from liza.board.edits import EDITABLE
from liza.config import Config
from liza.errors import EXIT_CODES, UsageError
from liza.invariants import RULES, STEP_CHECKS, TASK_CHECKS
from liza.lifecycle import BEGINNINGS, CLAIMABLE, EVENTS, SUCCEEDED, TABLE, TERMINAL, WORKERS, name_of
from liza.model import Role, State, Status
from liza.promises import PROMISES
from liza.record import Record
from liza.switches import MEANING as SWITCH_MEANING
from liza.switches import Switch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pydantic.fields import FieldInfo

    from liza.events import Event

MANY: Final = 5  # sources of one event; that many arrows would hide the rest of the picture

# On lines of their own, so that a page can speak of them.
_START: Final = re.compile(r"^<!-- rendered: .* -->$", re.MULTILINE)
_MARKED: Final = re.compile(
    r"^(?P<start><!-- rendered: (?P<name>.*) -->\n)(?:(?!<!-- rendered: ).*\n)*?(?P<end><!-- end -->)$",
    re.MULTILINE,
)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def coded(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def statuses_in_order(statuses: Iterable[Status]) -> list[Status]:
    return [status for status in Status if status in frozenset(statuses)]


def lifecycle_rows() -> str:
    return table(
        ["event", "from", "to", "who", "must hold the lease"],
        (
            [
                f"`{name_of(row.event)}`",
                coded(statuses_in_order(row.sources)),
                f"`{row.target}`" if row.target else "stays",
                ", ".join(role for role in Role if role in row.who),
                ", ".join(role for role in Role if row.held and role in row.who & WORKERS) or "nobody",
            ]
            for row in TABLE
        ),
    )


def statuses() -> str:
    return table(
        ["status", "meaning", "a task that has it"],
        ([f"`{status}`", model.MEANING[status], promises_of(status)] for status in Status),
    )


def promises_of(status: Status) -> str:
    return "; ".join(promise.says for promise in PROMISES[status])


def kinds_of_status() -> str:
    kinds = {
        "where a new task may begin": BEGINNINGS,
        "a coder may claim it": CLAIMABLE,
        "final: nothing leads out of it": TERMINAL,
        "succeeded: what a dependant waits for": SUCCEEDED,
    }
    return table(
        ["kind", "statuses"], ([kind, coded(statuses_in_order(members))] for kind, members in kinds.items())
    )


def diagram() -> str:
    """Return the machine as a Mermaid picture, without what leaves a task where it is."""
    arrows, crowds = _arrows_and_crowds()
    lines = [
        *(f"[*] --> {status}" for status in statuses_in_order(BEGINNINGS)),
        *(f"{source} --> {target}: {', '.join(names)}" for (source, target), names in arrows.items()),
        *(f"{status} --> [*]" for status in statuses_in_order(TERMINAL)),
        *(
            f"note right of {target} : {name}, from {', '.join(statuses_in_order(sources))}"
            for (name, target), sources in crowds.items()
        ),
    ]
    return "```mermaid\nstateDiagram-v2\n" + "".join(f"    {line}\n" for line in lines) + "```\n"


def _arrows_and_crowds() -> tuple[
    dict[tuple[Status, Status], list[str]], dict[tuple[str, Status], set[Status]]
]:
    sources_of: defaultdict[tuple[str, Status], set[Status]] = defaultdict(set)
    for row in TABLE:
        if row.target:
            sources_of[name_of(row.event), row.target] |= row.sources
    arrows: defaultdict[tuple[Status, Status], list[str]] = defaultdict(list)
    for (name, target), sources in sources_of.items():
        for source in statuses_in_order(sources) if len(sources) < MANY else ():
            arrows[source, target].append(name)
    return dict(arrows), {key: sources for key, sources in sources_of.items() if len(sources) >= MANY}


def roles() -> str:
    return table(["role", "may"], ([role, coded(map(name_of, _events_of(role)))] for role in Role))


def _events_of(role: Role) -> list[type[Event]]:
    return [event for event in EVENTS if any(row.event is event and role in row.who for row in TABLE)]


def exit_codes() -> str:
    return table(["exit code", "meaning"], ([f"{code}", meaning] for code, meaning in EXIT_CODES.items()))


def switches() -> str:
    files = (switch for switch in reversed(Switch) if switch is not Switch.NORMAL)
    return table(
        ["file", "while it is there"], ([f"`{switch.name}`", SWITCH_MEANING[switch]] for switch in files)
    )


def anomalies() -> str:
    kinds: Sequence[type[Record]] = get_args(get_args(Details)[0])
    return table(
        ["type", "details"],
        (
            [f"`{kind.model_fields['type'].default}`", _fields_of(kind, leaving_out={"type"})]
            for kind in kinds
        ),
    )


def config_keys() -> str:
    return table(["key", "default"], ([f"`{key}`", default] for key, default in _keys_of(Config, "")))


def _keys_of(kind: type[Record], prefix: str) -> Iterator[tuple[str, str]]:
    for name, field in kind.model_fields.items():
        default = field.get_default(call_default_factory=True, validated_data={})
        if isinstance(default, Record):
            yield from _keys_of(type(default), f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", "not set" if default is None else f"`{json.dumps(default)}`"


def sections() -> str:
    return table(
        ["where", "fields"], ([f"`{path}`", _fields_of(kind)] for path, kind in _records_in(State, ""))
    )


def _records_in(kind: type[Record], prefix: str) -> Iterator[tuple[str, type[Record]]]:
    """Yield what is nested in *kind*, at any depth; the configuration has a table of its own."""
    for name, field in kind.model_fields.items():
        found = list(_record_types(field.annotation))
        if len(found) == 1 and found[0] is not Config:
            path = f"{prefix}{_shown(name, field)}"
            yield path, found[0]
            yield from _records_in(found[0], f"{path}.")


def _record_types(annotation: Any) -> Iterator[type[Record]]:  # noqa: ANN401 - annotations have no type
    if isinstance(annotation, type) and issubclass(annotation, Record):
        yield annotation
    for inner in get_args(annotation):
        yield from _record_types(inner)


def _fields_of(kind: type[Record], leaving_out: Iterable[str] = ()) -> str:
    wanted = {name: field for name, field in kind.model_fields.items() if name not in leaving_out}
    must = [_shown(name, field) for name, field in wanted.items() if field.is_required()]
    may = [_shown(name, field) for name, field in wanted.items() if not field.is_required()]
    return "; ".join([*([coded(must)] if must else []), *([f"optional: {coded(may)}"] if may else [])])


def _shown(name: str, field: FieldInfo) -> str:
    return field.alias or name


def editable() -> str:
    return table(
        ["section", "fields that people may change"],
        ([f"`{section}`", coded(_in_order(section, fields))] for section, fields in EDITABLE.items()),
    )


def _in_order(section: str, fields: Iterable[str]) -> list[str]:
    (kind,) = _record_types(State.model_fields[section].annotation)
    return [_shown(name, field) for name, field in kind.model_fields.items() if name in frozenset(fields)]


def invariants() -> str:
    checks: list[tuple[str, Callable[..., object]]] = [
        *(("a task", check) for check in TASK_CHECKS),
        *(("the board", rule.find) for rule in RULES),
        *(("a change", check) for check in STEP_CHECKS),
    ]
    return table(["of", "what holds"], ([kind, inspect.getdoc(check) or ""] for kind, check in checks))


def programs() -> str:
    return table(
        ("backend", "logged in by", "model", "read-only steps", "may resume", "sees of your environment"),
        [
            (
                f"`{cli.name}`",
                coded([*cli.keys, *(f"~/{name}" for name in cli.credentials)]),
                cli.provider or "of any provider",
                "held back" if cli.holds_back else "found out afterwards",
                "yes" if cli.resume else "no",
                coded(cli.passing),
            )
            for cli in CLIS.values()
        ],
    )


RENDERINGS: Final[dict[str, Callable[[], str]]] = {
    "programs": programs,
    "lifecycle": lifecycle_rows,
    "statuses": statuses,
    "kinds": kinds_of_status,
    "diagram": diagram,
    "roles": roles,
    "sections": sections,
    "editable": editable,
    "invariants": invariants,
    "anomalies": anomalies,
    "config": config_keys,
    "switches": switches,
    "exit-codes": exit_codes,
}


def refreshed(text: str) -> str:
    """Return *text* with every marked part rendered anew."""
    if len(_START.findall(text)) != len(_MARKED.findall(text)):
        raise UsageError(
            "a `<!-- rendered: … -->` has no `<!-- end -->`; add it where the rendered part ends"
        )
    return _MARKED.sub(lambda found: found["start"] + _rendering(found["name"]) + found["end"], text)


def _rendering(name: str) -> str:
    if name not in RENDERINGS:
        near = get_close_matches(name, RENDERINGS, n=1) or sorted(RENDERINGS)
        raise UsageError(f"there is no table {name!r} to render; did you mean {' or '.join(near)}?")
    return RENDERINGS[name]()


def refresh(path: Path) -> bool:
    """Render anew what is marked in the file at *path*; tell whether that changed it."""
    text = path.read_text(encoding="utf-8")
    new = refreshed(text)
    if new != text:
        path.write_text(new, encoding="utf-8")
    return new != text


def main(directories: Sequence[str]) -> None:
    """Render anew what is marked in the Markdown files under *directories*."""
    for path in (path for directory in directories for path in sorted(Path(directory).rglob("*.md"))):
        try:
            changed = refresh(path)
        except UsageError as error:
            sys.exit(f"{path}: {error}")
        if changed:
            print(f"rendered {path}")


if __name__ == "__main__":
    main(sys.argv[1:])
