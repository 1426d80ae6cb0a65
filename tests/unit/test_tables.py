"""The pages in specs/ and docs/ say what the code does, because their tables come from it."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from liza.cli.registry import COMMANDS
from liza.domain import config
from liza.domain.changes import BOARD_RULES, DIFF_CHECKS, TASK_CHECKS
from liza.domain.config import Config
from liza.domain.lifecycle import AMENDABLE, EVENTS, REQUIRES, TERMINAL, TRANSITIONS, event_name, moves
from liza.domain.model import STATUS_MEANING, Role, State, Status
from liza.errors import EXIT_CODES, UsageError
from scripts import specs
from scripts.setting_meanings import SETTING_MEANINGS
from scripts.specs import MANY, RENDERINGS, main, refreshed, table

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = sorted(page for folder in ("specs", "docs") for page in (ROOT / folder).rglob("*.md"))
LIFECYCLE: Final = (ROOT / "specs" / "lifecycle.md").read_text(encoding="utf-8")
BOARD: Final = (ROOT / "specs" / "board.md").read_text(encoding="utf-8")


def cells(rendering: str) -> list[list[str]]:
    """Return the rows of a rendered table, without its header."""
    return [line.strip("| ").split(" | ") for line in RENDERINGS[rendering]().splitlines()[2:]]


class TestPages:
    @pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
    def test_a_page_is_what_the_code_renders(self, page: Path) -> None:
        """If this fails, `make specs` mends it."""
        text = page.read_text(encoding="utf-8")

        assert refreshed(text) == text

    def test_every_table_is_on_a_page(self) -> None:
        text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
        shown = re.findall(r"^<!-- rendered: (.*) -->$", text, re.MULTILINE)

        assert sorted(set(shown)) == sorted(RENDERINGS)


class TestLifecycle:
    def test_every_row_is_told(self) -> None:
        told = cells("lifecycle")

        assert [row[0] for row in told] == [f"`{event_name(row.event)}`" for row in TRANSITIONS]
        for line, row in zip(told, TRANSITIONS, strict=True):
            assert set(line[1].replace("`", "").split(", ")) == set(row.sources)
            assert line[2] == "stays" or set(line[2].replace("`", "").split(", ")) == set(row.targets)
            assert set(line[3].split(", ")) == set(row.who)

    def test_who_must_hold_the_lease_is_told(self) -> None:
        told = {tuple(line[:2]): line[4] for line in cells("lifecycle")}

        assert told["`report`", "`WORKING`"] == "planner, coder"
        assert told["`take`", "`READY_FOR_REVIEW`, `APPROVED`"] == "nobody"

    @pytest.mark.parametrize("status", Status)
    def test_every_status_is_told_with_its_meaning_and_promises(self, status: Status) -> None:
        (line,) = [line for line in cells("statuses") if line[0] == f"`{status}`"]

        assert line[1] == STATUS_MEANING[status]
        assert line[2] == "; ".join(promise.says for promise in REQUIRES[status])

    @pytest.mark.parametrize("role", Role)
    def test_every_role_is_told_with_all_it_may_do(self, role: Role) -> None:
        (line,) = [line for line in cells("roles") if line[0] == role]

        may = {event_name(row.event) for row in TRANSITIONS if role in row.who}
        assert set(line[1].replace("`", "").split(", ")) == may

    def test_every_move_is_drawn(self) -> None:
        """As an arrow, or where an event leads there from many statuses, as a note."""
        picture = RENDERINGS["diagram"]()
        arrows = set(re.findall(r"^    (\w+) --> (\w+): (.*)$", picture, re.MULTILINE))
        notes = re.findall(r"^    note right of (\w+) : (\w+), from (.*)$", picture, re.MULTILINE)
        drawn = {(a, b, name) for a, b, names in arrows for name in names.split(", ")}
        noted = {(a, b, name) for b, name, sources in notes for a in sources.split(", ")}

        assert drawn | noted == {(source, target, name) for name, source, target in moves()}
        assert not drawn & noted
        assert all(len(sources.split(", ")) >= MANY for *_, sources in notes)

    def test_beginnings_and_ends_are_drawn(self) -> None:
        picture = RENDERINGS["diagram"]()

        assert set(re.findall(r"\[\*\] --> (\w+)", picture)) == {"DRAFT", "IDLE"}
        assert set(re.findall(r"(\w+) --> \[\*\]", picture)) == TERMINAL

    def test_the_prose_names_the_one_silent_event(self) -> None:
        assert [event_name(event) for event in EVENTS if event.silent] == ["renew"]
        assert "only `renew` does not" in LIFECYCLE


class TestBoard:
    @pytest.mark.parametrize(("code", "meaning"), EXIT_CODES.items())
    def test_every_exit_code_is_told(self, code: int, meaning: str) -> None:
        assert [f"{code}", meaning] in cells("exit-codes")
        assert meaning in BOARD

    def test_switches_are_told_strongest_first(self) -> None:
        assert [line[0] for line in cells("switches")] == ["`ABORT`", "`PAUSE`", "`CHECKPOINT`"]
        assert set(config.SWITCH_MEANING) == set(config.Switch)

    def test_every_section_is_told(self) -> None:
        told = {line[0].strip("`") for line in cells("sections")}

        for section in State.model_fields:
            assert section in told or f"`{section}`" in BOARD

    def test_every_rule_is_told(self) -> None:
        checks = [*TASK_CHECKS, *(rule.find for rule in BOARD_RULES), *DIFF_CHECKS]

        assert [line[1] for line in cells("invariants")] == [check.__doc__ for check in checks]

    def test_every_key_of_the_configuration_is_told_with_its_default(self) -> None:
        told = dict(line[:2] for line in cells("config"))

        assert {key.strip("`").partition(".")[0] for key in told} == set(Config.model_fields)
        assert told["`limits.max_coder_iterations`"] == "`10`"
        assert told["`workflow`"] == '`"liza"`'
        assert told["`gates.test`"] == "not set"
        assert told["`worktree.copy`"] == "`[]`"

    def test_a_setting_that_is_gone_is_not_explained(self) -> None:
        assert {line[0].strip("`") for line in cells("config")} == set(SETTING_MEANINGS)

    def test_every_type_of_anomaly_is_told_with_its_fields(self) -> None:
        told = dict(line[:2] for line in cells("anomalies"))

        assert told["`trade_off`"] == "`what`, `why`; optional: `debt`"
        assert len(told) == 19

    def test_what_people_may_edit_is_told(self) -> None:
        told = dict(line[:2] for line in cells("editable"))

        assert set(told["`tasks`"].replace("`", "").split(", ")) == AMENDABLE
        assert "`for`" in told["`human_notes`"]


class TestCommands:
    def test_every_command_is_told_as_it_is_typed(self) -> None:
        told = {line[0].strip("`"): line[1:] for line in cells("commands")}

        assert set(told) == {f"liza {name}" for name in COMMANDS}
        assert told["liza note"] == ["tell the agents something", "`[--json]`, `TEXT`, `[--for TASK]`"]
        assert "`[--kind code\\|docs\\|config]`" in told["liza task add"][1]

    def test_every_argument_is_explained_in_help(self) -> None:
        bare = [
            (name, a.names)
            for name, one in COMMANDS.items()
            for a in one.arguments
            if not a.options.get("help")
        ]

        assert bare == []


class TestRendering:
    def test_what_is_not_marked_stays(self) -> None:
        text = "a\n<!-- rendered: switches -->\nold\n\nolder\n<!-- end -->\nb `<!-- rendered: x -->`\n"

        new = refreshed(text)

        assert new.startswith("a\n<!-- rendered: switches -->\n| file |")
        assert new.endswith("\n<!-- end -->\nb `<!-- rendered: x -->`\n")
        assert "old" not in new
        assert refreshed(new) == new

    def test_two_parts_are_two(self) -> None:
        parts = ("<!-- rendered: switches -->\n<!-- end -->", "<!-- rendered: exit-codes -->\n<!-- end -->")

        new = refreshed("\nbetween\n".join(parts))

        assert new.index("ABORT") < new.index("between") < new.index("exit code")

    def test_an_unknown_table_is_told_with_the_nearest_known(self) -> None:
        with pytest.raises(UsageError, match="there is no table 'switch' to render; did you mean switches"):
            refreshed("<!-- rendered: switch -->\n<!-- end -->\n")

    @pytest.mark.parametrize(
        "text",
        [
            "<!-- rendered: switches -->\n",
            "<!-- rendered: switches -->\n<!-- rendered: exit-codes -->\n<!-- end -->\n",
        ],
    )
    def test_a_part_without_an_end_is_refused(self, text: str) -> None:
        """The rest of the page would be taken for the table, and replaced."""
        with pytest.raises(UsageError, match="has no `<!-- end -->`"):
            refreshed(text)

    def test_a_bar_does_not_break_a_row(self) -> None:
        assert table(["a"], [["x | y"]]).splitlines()[-1] == r"| x \| y |"

    def test_the_program_renders_what_changed_and_says_so(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "deep").mkdir()
        stale, plain = tmp_path / "deep" / "stale.md", tmp_path / "plain.md"
        stale.write_text("<!-- rendered: switches -->\n<!-- end -->\n", encoding="utf-8")
        plain.write_text("nothing here\n", encoding="utf-8")

        main([str(tmp_path)])
        main([str(tmp_path)])

        assert capsys.readouterr().out == f"rendered {stale}\n"
        assert "ABORT" in stale.read_text(encoding="utf-8")
        assert plain.read_text(encoding="utf-8") == "nothing here\n"

    def test_the_program_says_which_page_is_wrong(self, tmp_path: Path) -> None:
        page = tmp_path / "page.md"
        page.write_text("<!-- rendered: song -->\n<!-- end -->\n", encoding="utf-8")

        done = subprocess.run(
            [sys.executable, "-m", specs.__name__, str(tmp_path)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )

        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith(f"{page}: there is no table 'song' to render")
