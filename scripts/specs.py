"""The tables in specs/ and docs/, rendered from the tables in the code, so that the two cannot disagree.

A page says where a table belongs by a pair of comments, `<!-- rendered: NAME -->` and `<!-- end -->`; what
stands between them is replaced by `scripts/specs.py specs docs`.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections import defaultdict
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

import liza.cli.main  # noqa: F401 - which puts every command into the table
from liza.agents.clis.table import CLIS
from liza.agents.llm.faults import ENDING_BY_MESSAGE, HANDLING_BY_NAME
from liza.board.edits import EDITABLE
from liza.cli.registry import COMMANDS
from liza.cli.terminal.keys import key_rows
from liza.daemon.policy.pick import STATE_AFTER_ENDING
from liza.domain import model
from liza.domain import rules as rule_table
from liza.domain.anomalies import Details
from liza.domain.answer_parsing import UnreadableAnswer, parse_answer
from liza.domain.answers import ANSWER_TYPES, ROLE_OF_STEP, Step
from liza.domain.changes import BOARD_RULES, DIFF_CHECKS, TASK_CHECKS
from liza.domain.config import SWITCH_MEANING, Config, Switch
from liza.domain.cycle_archive import SCHEMA_VERSIONS
from liza.domain.lifecycle import (
    CLAIMABLE,
    EVENTS,
    INITIAL_STATUSES,
    LEASED_ROLES,
    REQUIRES,
    SUCCEEDED,
    TERMINAL,
    TRANSITIONS,
    event_name,
    moves,
)
from liza.domain.model import PROVIDER_STATES, ProviderState, Role, State, Status
from liza.domain.record import Record
from liza.domain.rules import GROUPS, RULES, EventKind, Rule
from liza.domain.version import VERSION
from liza.domain.yaml_parse import TAG, parse_yaml
from liza.errors import EXIT_CODES, UsageError
from liza.gates.registry import GATE_TYPES as GATE_KINDS
from liza.gates.scan import FORBIDDEN
from liza.gauntlet.cases import ALL_WORKFLOWS, CASES
from liza.system.run_control import MEANING as ENDING_MEANING
from liza.system.run_control import RunEnding
from liza.workflow.document import (
    CLEAN_ONLY,
    IF_TAINTED,
    MERGES,
    OPTIONS,
    Effect,
    Gate,
    GateKind,
    GateMode,
    OnExhausted,
    Phase,
    SessionMode,
    Workflow,
    load_workflow,
    packaged_names,
)
from scripts.setting_meanings import SETTING_MEANINGS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pydantic.fields import FieldInfo

    from liza.cli.registry import Argument
    from liza.domain.lifecycle import Event

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
        ["event", "from", "to", "who", "must hold the lease", "in history"],
        (
            [
                f"`{event_name(row.event)}`",
                coded(statuses_in_order(row.sources)),
                coded(statuses_in_order(row.targets)) or "stays",
                ", ".join(role for role in Role if role in row.who),
                ", ".join(role for role in Role if row.held and role in row.who & LEASED_ROLES) or "nobody",
                coded(row.event.words),
            ]
            for row in TRANSITIONS
        ),
    )


def statuses() -> str:
    return table(
        ["status", "meaning", "a task that has it"],
        ([f"`{status}`", model.STATUS_MEANING[status], promises_of(status)] for status in Status),
    )


def promises_of(status: Status) -> str:
    return "; ".join(promise.says for promise in REQUIRES[status])


def kinds_of_status() -> str:
    kinds = {
        "where a new task may begin": INITIAL_STATUSES,
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
        *(f"[*] --> {status}" for status in statuses_in_order(INITIAL_STATUSES)),
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
    for name, source, target in moves():
        sources_of[name, target].add(source)
    arrows: defaultdict[tuple[Status, Status], list[str]] = defaultdict(list)
    for (name, target), sources in sources_of.items():
        for source in statuses_in_order(sources) if len(sources) < MANY else ():
            arrows[source, target].append(name)
    return dict(arrows), {key: sources for key, sources in sources_of.items() if len(sources) >= MANY}


def roles() -> str:
    return table(["role", "may"], ([role, coded(map(event_name, _events_of(role)))] for role in Role))


def _events_of(role: Role) -> list[type[Event]]:
    return [event for event in EVENTS if any(row.event is event and role in row.who for row in TRANSITIONS)]


def exit_codes() -> str:
    return table(["exit code", "meaning"], ([f"{code}", meaning] for code, meaning in EXIT_CODES.items()))


def switches() -> str:
    files = (switch for switch in reversed(Switch) if switch is not Switch.NORMAL)
    return table(
        ["file", "while it is there"], ([f"`{switch.name}`", SWITCH_MEANING[switch]] for switch in files)
    )


def provider_states() -> str:
    """Render what a provider's word means, and which endings of a run say it."""
    said = {
        state: [str(ending) for ending, its in STATE_AFTER_ENDING.items() if its is state]
        for state in ProviderState
    }
    rows = (
        [f"`{state}`", coded(said[state]) or "a run went through", PROVIDER_STATES[state]] for state in said
    )
    return table(["state", "after a run that ended", "meaning"], rows)


def model_faults() -> str:
    """Render what litellm's exceptions mean; its words tell apart what one name leaves open."""
    rows = [
        [f"`{name}`", f"`{cure.ending}`", "yes" if cure.is_transient else "no"]
        for name, cure in HANDLING_BY_NAME.items()
    ]
    rows += [
        [f"`{name}` that says `{pattern.pattern}`", f"`{ending}`", "no"]
        for name, meanings in ENDING_BY_MESSAGE.items()
        for pattern, ending in meanings
    ]
    return table(["exception", "the run ends as", "tried again before"], rows)


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
    rows = ([f"`{key}`", default, SETTING_MEANINGS[key]] for key, default in _keys_of(Config, ""))
    return table(["key", "default", "what it is"], rows)


def _keys_of(kind: type[Record], prefix: str) -> Iterator[tuple[str, str]]:
    for name, field in kind.model_fields.items():
        default = field.get_default(call_default_factory=True, validated_data={})
        if isinstance(default, Record):
            yield from _keys_of(type(default), f"{prefix}{name}.")
        else:
            yield (
                f"{prefix}{_shown(name, field)}",
                "not set" if default is None else f"`{json.dumps(default)}`",
            )


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
        *(("the board", rule.find) for rule in BOARD_RULES),
        *(("a change", check) for check in DIFF_CHECKS),
    ]
    return table(["of", "what holds"], ([kind, inspect.getdoc(check) or ""] for kind, check in checks))


def answers() -> str:
    """Return what each step is asked for, and by which keys it may answer."""
    return table(
        ["step", "role", "answer"],
        ([f"`{step}`", ROLE_OF_STEP[step], _fields_of(ANSWER_TYPES[step])] for step in Step),
    )


def slips() -> str:
    """Return what agents get wrong in their answers, and what becomes of each: taken, or asked for again."""
    text = files("liza.domain").joinpath("slips.yaml").read_text(encoding="utf-8")
    rows = [row for row in parse_yaml(f"slips:\n{text}").data["slips"] if isinstance(row, dict)]  # type: ignore[union-attr]
    return table(
        ["step", "slip", "what becomes of it", "further runs"],
        ([f"`{row['step']}`", str(row["slip"]), *_fate(row)] for row in rows),
    )


def _fate(row: Mapping[str, Any]) -> tuple[str, str]:
    text = row.get("reply") or f"```{TAG}\n{row['answer']}\n```\n"
    found = parse_answer(str(text), Step(row["step"]))
    if isinstance(found, UnreadableAnswer):
        return "asked for once more", "1, for the block alone"
    return str(row.get("then", "taken")), "0"


def house() -> str:
    """Return the words that stand before every prompt."""
    text = files("liza.daemon.prompts").joinpath("house.md").read_text(encoding="utf-8")
    return "".join(f"> {line}".rstrip() + "\n" for line in text.splitlines())


def endings() -> str:
    return table(["ending", "meaning"], ([f"`{ending}`", ENDING_MEANING[ending]] for ending in RunEnding))


def workflows() -> str:
    return table(
        ["workflow", "phase", "who works", "gates, in order", "where it leads", "rounds"],
        (
            [
                f"`{name}`",
                f"`{title}`",
                phase.worker or "nobody",
                _gates(phase),
                _edges(phase),
                _rounds(phase),
            ]
            for name in packaged_names()
            for title, phase in load_workflow(name).phases.items()
        ),
    )


def _gates(phase: Phase) -> str:
    shown = [f"`{gate.id}` ({', '.join(_marks(gate))})" for gate in phase.gates]
    return ", ".join(shown) + (": all are asked, the worst counts" if phase.collect else "")


def _marks(gate: Gate) -> Iterator[str]:
    yield gate.kind
    yield from (mark for mark in (gate.at, gate.mode) if mark in {"before", "advisory", "record"})
    for word in ("when", "unless", "skip_if"):
        yield from (f"{word} {predicate}" for predicate in getattr(gate, word))


def _edges(phase: Phase) -> str:
    said = {"pass": phase.next} if phase.next else {}
    edges = said | {key: edge.to for key, edge in phase.edges.items()}
    return ", ".join(f"{outcome} → `{to}`" for outcome, to in edges.items())


def _rounds(phase: Phase) -> str:
    if not phase.max_iterations:
        return "no limit"
    most = ", ".join(
        f"{count}" if path == "*" else f"{path} {count}" for path, count in phase.max_iterations.items()
    )
    return f"{most}, then {phase.on_exhausted}" + ("" if phase.blocking else ", without a mark")


def workflow_features() -> str:
    """Return what each workflow that comes with Liza has, by feature."""
    names = packaged_names()
    flows = [load_workflow(name) for name in names]
    return table(
        ["feature", *(f"`{name}`" for name in names)],
        ([feature, *(_cell(has(flow)) for flow in flows)] for feature, has in FEATURES.items()),
    )


def _cell(found: object) -> str:
    return ("yes" if found else "") if isinstance(found, bool) else str(found)


def _gates_of(flow: Workflow) -> list[Gate]:
    return [gate for phase in flow.phases.values() for gate in phase.gates]


def _has_kind(kind: GateKind) -> Callable[[Workflow], bool]:
    return lambda flow: any(gate.kind is kind for gate in _gates_of(flow))


def _exhausts(policy: OnExhausted) -> Callable[[Workflow], bool]:
    return lambda flow: any(
        phase.on_exhausted is policy and bool(phase.max_iterations) for phase in flow.phases.values()
    )


FEATURES: Final[dict[str, Callable[[Workflow], object]]] = {
    "tasks come from": lambda flow: flow.tasks.source,
    "work begins with": lambda flow: flow.workspace.base.value,
    "who works": lambda flow: ", ".join(
        dict.fromkeys(phase.worker for phase in flow.phases.values() if phase.worker)
    ),
    "agents that decide": lambda flow: ", ".join(
        dict.fromkeys(str(gate.role) for gate in _gates_of(flow) if gate.role and gate.decides)
    ),
    "agents that advise": lambda flow: ", ".join(
        dict.fromkeys(str(gate.role) for gate in _gates_of(flow) if gate.mode is GateMode.ADVISORY)
    ),
    "a person decides": _has_kind(GateKind.HUMAN),
    "work is announced before": lambda flow: any("checkpoint" in gate.options for gate in _gates_of(flow)),
    "new tests are shown to fail without the change": _has_kind(GateKind.PROOF),
    "a score is measured": _has_kind(GateKind.SCORE),
    "several paths": lambda flow: any(gate.sets_path for gate in _gates_of(flow)),
    "rounds that are over: blocked": _exhausts(OnExhausted.BLOCK),
    "rounds that are over: stopped": _exhausts(OnExhausted.STOP),
    "rounds that are over: forced and marked": _exhausts(OnExhausted.FORCE_PASS),
    "a crash uses up a round": lambda flow: flow.crash_consumes_iteration,
    "what judges found is remembered": lambda flow: flow.remembers,
    "a session may go on": lambda flow: any(
        SessionMode.RESUME in phase.session.values() for phase in flow.phases.values()
    ),
    "a page for people": lambda flow: flow.page is not None,
    "merged": lambda flow: any(gate.options.get("effect") in MERGES for gate in _gates_of(flow)),
    "who approves may want one commit": lambda flow: flow.offers_squash,
    "effects": lambda flow: ", ".join(
        dict.fromkeys(
            [
                *(one for phase in flow.phases.values() for many in phase.effects.values() for one in many),
                *flow.at_end,
            ]
        )
    ),
    "rules of its own": lambda flow: len(flow.rules),
}


def gate_options() -> str:
    return table(
        ["kind", "can be told", "which says"],
        (
            [f"`{kind}`", f"`{name}`" if name else "nothing more", says + _if_refused(kind, name)]
            for kind, options in OPTIONS.items()
            for name, says in (options or {"": "who judges is its `role`"}).items()
        ),
    )


def _if_refused(kind: GateKind, name: str) -> str:
    """Return what to add about an option that documents may have and no worker performs."""
    gate = GATE_KINDS.get(kind)
    known = {field.alias or key for key, field in gate.options.model_fields.items()} if gate else {name}
    is_performed = name in (*known, "tree", "on_timeout")
    return "" if is_performed or not name else "; refused so far"


def effects() -> str:
    return table(["effect", "of tainted work"], ([f"`{effect}`", _if_tainted(effect)] for effect in Effect))


def _if_tainted(effect: Effect) -> str:
    if effect in CLEAN_ONLY:
        return "waits until a person accepts the taint"
    return f"`{IF_TAINTED[effect]}` instead" if effect in IF_TAINTED else "the same"


def rules() -> str:
    return table(
        [
            "rule",
            "of",
            "counts",
            "the same",
            "how many",
            "in",
            "then",
            "what it means",
            "anew after",
            "chosen by",
        ],
        (
            [
                f"`{rule.name}`",
                rule.subject,
                str(rule.counts),
                rule.same.says if rule.same else "",
                "" if rule.is_clock else str(rule.count),
                _window(rule),
                rule.action,
                rule.sentence,
                ", ".join(map(str, rule.reset)),
                "all" if rule.always else _chosen_by(rule),
            ]
            for rule in RULES
        ),
    )


def counted_events() -> str:
    return table(["event", "what it is"], ([f"`{kind}`", rule_table.MEANING[kind]] for kind in EventKind))


def _window(rule: Rule) -> str:
    return (
        f"`{rule.window}`"
        if isinstance(rule.window, str)
        else f"{rule.minutes} minutes"
        if rule.window
        else ""
    )


def _chosen_by(rule: Rule) -> str:
    groups = [name for name, members in GROUPS.items() if rule.name in members]
    names = [
        name
        for name in packaged_names()
        if rule.name in {one.name for one in load_workflow(name).watched_rules()}
    ]
    return coded(names) + (f" (as `{groups[0]}`)" if groups else "")


def gates() -> str:
    rows = ([f"`{name}`", kind.meaning, _fields_of(kind.options)] for name, kind in GATE_KINDS.items())
    return table(["kind", "passes where", "options"], rows)


def schema_versions() -> str:
    rows = {"the board (`state.yaml`, journal)": str(VERSION), **SCHEMA_VERSIONS}
    return table(["format", "version"], ([name, version] for name, version in rows.items()))


def forbidden() -> str:
    return table(["forbidden"], ([name] for name in FORBIDDEN))


def programs() -> str:
    return table(
        ("backend", "logged in by", "model", "read-only steps", "may resume", "sees of your environment"),
        [
            (
                f"`{cli.name}`",
                coded([*cli.keys, *(f"~/{name}" for name in cli.credentials)]),
                cli.provider or "of any provider",
                "held back" if cli.has_read_only_mode else "found out afterwards",
                "yes" if cli.resume else "no",
                coded(cli.env_passthrough),
            )
            for cli in CLIS.values()
        ],
    )


def commands() -> str:
    rows = sorted(COMMANDS.items())
    return table(
        ["command", "what it does", "takes"],
        ([f"`liza {name}`", row.summary, coded(map(_typed, row.arguments))] for name, row in rows),
    )


def keys() -> str:
    return table(["key", "what it does"], ([f"`{key}`", says] for key, says in key_rows()))


def _typed(argument: Argument) -> str:
    """Return an argument of a command as people type it, in brackets where it may be left out."""
    name, options = argument.names[-1], argument.options
    words = [name] if name.startswith("-") else []
    if options.get("action") not in {"store_true", "store_false"}:
        words.append(options.get("metavar") or "|".join(options["choices"]))
    must = options.get("required") or (name[0] != "-" and options.get("nargs") not in {"?", "*"})
    return " ".join(words) if must else f"[{' '.join(words)}]"


def gauntlet_cases() -> str:
    """Return the cases that are run under every workflow, and how many each workflow has."""
    everywhere = [case for case in CASES.values() if case.workflows == ALL_WORKFLOWS]
    counts = {name: sum(name in case.workflows for case in CASES.values()) for name in ALL_WORKFLOWS}
    totals = ", ".join(f"{count} under `{name}`" for name, count in counts.items())
    rows = table(["case", "does", "workflows"], ([f"`{one.name}`", one.does, "all"] for one in everywhere))
    return f"{totals}.\n\n{rows}"


RENDERINGS: Final[dict[str, Callable[[], str]]] = {
    "commands": commands,
    "keys": keys,
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
    "answers": answers,
    "slips": slips,
    "house": house,
    "endings": endings,
    "workflows": workflows,
    "gate-options": gate_options,
    "workflow-features": workflow_features,
    "effects": effects,
    "rules": rules,
    "counted_events": counted_events,
    "gates": gates,
    "schema-versions": schema_versions,
    "forbidden": forbidden,
    "provider-states": provider_states,
    "model-faults": model_faults,
    "gauntlet-cases": gauntlet_cases,
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
