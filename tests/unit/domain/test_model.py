"""The values on the board: frozen, typed, and the same after a trip through the file."""

from datetime import UTC, datetime, timedelta, timezone
from types import MappingProxyType
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from liza.domain.anomalies import Anomaly, Details, MergeConflict, RetryLoop, TradeOff
from liza.domain.config import Budget, Config, Limits
from liza.domain.model import (
    KEYED_SECTIONS,
    PLAIN_SECTIONS,
    SHOWN_EVENTS,
    Adopted,
    Goal,
    Lease,
    Note,
    Sprint,
    State,
    Status,
    Task,
    TaskScope,
    index_leases,
)
from liza.domain.record import LONGEST_ID, Commit, Id, Record, Time, records_by_id, safe_id, utc_now
from liza.errors import NotThere
from tests.support.sample_tasks import BASE, NOW, SECOND, WORK, board, new_task, task_in

KINDS: list[type[Record]] = list(get_args(get_args(Details)[0]))
ids = TypeAdapter[str](Id)
commits = TypeAdapter[str](Commit)
times = TypeAdapter[datetime](Time)

VALUES: dict[str, Any] = {  # a value for every field that some type of details has
    **dict.fromkeys(
        ("error_pattern", "what", "why", "assumption", "reality", "root_cause", "question", "called"), "x"
    ),
    **dict.fromkeys(
        (
            "spec_ref",
            "missing",
            "change",
            "service",
            "symptom",
            "reason",
            "agent",
            "file",
            "protocol_section",
            "gate",
            "command",
            "cause",
            "likely",
        ),
        "x",
    ),
    **{name: ["x"] for name in ("paths", "tried", "moved", "problems")},
    **dict.fromkeys(("count", "cycles", "crashes"), 1),
    "debt": True,
}


def details_of(kind: type[Record]) -> dict[str, Any]:
    return {name: VALUES[name] for name in kind.model_fields if name != "type"}


def type_of(kind: type[Record]) -> str:
    return str(kind.model_fields["type"].default)


def an_anomaly(**fields: Any) -> Anomaly:  # noqa: ANN401 - whatever somebody may log
    return Anomaly.model_validate({"id": "anomaly-1", "logged_by": "coder-1", "timestamp": NOW, **fields})


class TestRecords:
    def test_are_frozen(self) -> None:
        """A state that was read stays as it was, whatever happens to the board."""
        with pytest.raises(ValidationError, match="frozen"):
            new_task().status = Status.MERGED  # type: ignore[misc]

    @pytest.mark.parametrize("section", [*KEYED_SECTIONS, "archived"])
    def test_mappings_of_a_board_are_read_only(self, section: str) -> None:
        state = State.model_validate(board(new_task()).to_json())

        with pytest.raises(TypeError, match="does not support item assignment"):
            getattr(state, section)["t9"] = None

    def test_an_unknown_key_is_refused(self) -> None:
        """A typo in a file must not become a default."""
        with pytest.raises(ValidationError, match="dependson"):
            Task.model_validate({**new_task().to_json(), "dependson": ["t2"]})

    def test_a_copy_changes_nothing_else(self) -> None:
        task = new_task(priority=2)

        assert task.replace(priority=3) == new_task(priority=3)
        assert task.priority == 2

    def test_every_section_of_the_board_is_of_one_kind(self) -> None:
        assert {"version", "revision", *KEYED_SECTIONS, *PLAIN_SECTIONS} == set(State.model_fields)


class TestTimes:
    def test_are_kept_in_utc(self) -> None:
        summer = timezone(timedelta(hours=2))

        assert times.validate_python(NOW.astimezone(summer)).tzinfo is UTC
        assert times.validate_python("2026-01-01T14:00:00+02:00") == NOW

    @pytest.mark.parametrize("naive", [datetime(2026, 1, 1), "2026-01-01T12:00:00", "2026-01-01"])  # noqa: DTZ001
    def test_naive_ones_are_refused(self, naive: object) -> None:
        """Nobody knows which moment they mean."""
        with pytest.raises(ValidationError, match="timezone"):
            times.validate_python(naive)

    @pytest.mark.parametrize("number", [2026, 20260101, 1.5, "2026", "1767268800", True, None])
    def test_bare_numbers_are_refused(self, number: object) -> None:
        """`deadline: 2026` is a year to whoever wrote it, and half an hour past 1970 to pydantic."""
        with pytest.raises(ValidationError, match="is not a time: write it like 2026-01-31T12:00:00Z"):
            times.validate_python(number)

    def test_one_that_utc_cannot_say_is_refused(self) -> None:
        """An error of the value, with its place, not a crash of whoever reads the file."""
        with pytest.raises(ValidationError, match="out of range"):
            times.validate_python("9999-12-31T23:59:59-23:00")

    def test_the_clock_is_aware(self) -> None:
        assert utc_now().tzinfo is UTC

    def test_are_written_with_a_z(self) -> None:
        assert Goal(description="g", created=NOW).to_json()["created"] == "2026-01-01T12:00:00Z"

    def test_a_lease_is_over_at_its_end(self) -> None:
        lease = Lease(holder="coder-1", token="t", expires=NOW)  # noqa: S106

        assert lease.is_live(NOW - SECOND)
        assert not lease.is_live(NOW)


class TestIds:
    @pytest.mark.parametrize(
        "name", ["t1", "goal.2", "coder-1", "A_b-c.d", "0", "a" * LONGEST_ID, "lock", "x.locks", "HEAD"]
    )
    def test_a_plain_word_is_one(self, name: str) -> None:
        assert ids.validate_python(name) == name

    @pytest.mark.parametrize(
        "name",
        [
            "",
            ".",
            "..",
            "../t1",
            "a/b",
            "/etc/passwd",
            "a\\b",
            "a..b",
            ".hidden",
            "-rf",
            "_x",
            "ends.",
            "ends.lock",
            "a b",
            "a\n",
            "a\0",
            "t1'; rm -rf .",
            '"',
            "$(id)",
            "`id`",
            "a;b",
            "a|b",
            "a&b",
            "a*",
            "~",
            "a~1",
            "a^",
            "a:b",
            "a@{1}",
            "é",
            "１",  # noqa: RUF001
            "a" * (LONGEST_ID + 1),
        ],
        ids=repr,
    )
    def test_a_path_a_shell_word_or_what_git_refuses_is_none(self, name: str) -> None:
        """A task id with a quote in it ran a shell command, once."""
        with pytest.raises(ValidationError, match="is not an id: use up to 64 letters"):
            ids.validate_python(name)

    @given(st.text(max_size=70))
    def test_whatever_is_accepted_is_a_word_everywhere(self, text: str) -> None:
        try:
            name = safe_id(text)
        except ValueError:
            return
        assert name.isascii()
        assert not set(name) & set("/\\ \t\n'\"$`;|&<>(){}[]*?!#~^:@,=%+")
        assert name[0].isalnum()
        assert ".." not in name
        assert len(name) <= LONGEST_ID

    @pytest.mark.parametrize(
        "record",
        [
            {"depends_on": ["../t2"]},
            {"id": "a/b"},
            {"assigned_to": "-x"},
            {"superseded_by": ["a b"]},
            {"approved_by": "a;b"},
            {"authors": ["$x"]},
            {"created_by": ""},
        ],
        ids=str,
    )
    def test_every_name_on_a_task_is_checked(self, record: dict[str, object]) -> None:
        with pytest.raises(ValidationError, match="is not an id"):
            Task.model_validate({**new_task().to_json(), **record})


class TestCommits:
    @pytest.mark.parametrize("commit", [BASE, WORK, "0" * 40, "f" * 64])
    def test_a_full_hash_is_one(self, commit: str) -> None:
        assert commits.validate_python(commit) == commit

    @pytest.mark.parametrize(
        "commit", ["", "HEAD", "abc1234", "F" * 40, "0" * 41, "0" * 63, "g" * 40, "0" * 40 + "\n", "--all"]
    )
    def test_anything_else_is_refused(self, commit: str) -> None:
        """A name moves, and a crafted commit id set a task to MERGED, once."""
        with pytest.raises(ValidationError, match="is not a full commit hash"):
            commits.validate_python(commit)


class TestAnomalies:
    @pytest.mark.parametrize("kind", KINDS, ids=type_of)
    def test_details_are_of_the_type_that_is_said(self, kind: type[Record]) -> None:
        logged = an_anomaly(type=type_of(kind), details=details_of(kind))

        assert isinstance(logged.details, kind)

    @pytest.mark.parametrize("kind", KINDS, ids=type_of)
    def test_a_missing_field_is_refused(self, kind: type[Record]) -> None:
        """Patterns that counted missing fields as equal tripped on nothing."""
        for name, field in kind.model_fields.items():
            if field.is_required():
                rest = {key: value for key, value in details_of(kind).items() if key != name}
                with pytest.raises(ValidationError, match=name):
                    an_anomaly(type=type_of(kind), details=rest)

    @pytest.mark.parametrize("kind", KINDS, ids=type_of)
    def test_a_field_of_another_type_is_refused(self, kind: type[Record]) -> None:
        with pytest.raises(ValidationError, match="Extra inputs"):
            an_anomaly(type=type_of(kind), details={**details_of(kind), "mood": "bad"})

    @pytest.mark.parametrize("kind", KINDS, ids=type_of)
    def test_an_empty_value_is_refused(self, kind: type[Record]) -> None:
        for name, value in details_of(kind).items():
            if isinstance(value, str | list):
                with pytest.raises(ValidationError, match=name):
                    an_anomaly(type=type_of(kind), details={**details_of(kind), name: value[:0]})

    def test_an_unknown_type_is_refused(self) -> None:
        with pytest.raises(ValidationError, match="retry_loop"):
            an_anomaly(type="bad_mood", details={})

    @pytest.mark.parametrize(
        "details", [MergeConflict(paths=("a.py",)), {"type": "merge_conflict", "paths": ["a.py"]}]
    )
    def test_the_type_is_that_of_the_details(self, details: object) -> None:
        with pytest.raises(
            ValidationError, match="type is 'retry_loop', but the details are of 'merge_conflict'"
        ):
            an_anomaly(type="retry_loop", details=details)

    def test_the_type_is_said_once_in_the_file(self) -> None:
        logged = an_anomaly(type="retry_loop", details=RetryLoop(error_pattern="E", count=2))

        assert logged.to_json()["type"] == "retry_loop"
        assert logged.to_json()["details"] == {"error_pattern": "E", "count": 2}


class TestRoundTrip:
    @pytest.mark.parametrize("status", Status)
    def test_of_a_task(self, status: Status) -> None:
        task = task_in(status)

        assert Task.model_validate(task.to_json()) == task

    @pytest.mark.parametrize("kind", KINDS, ids=type_of)
    def test_of_an_anomaly(self, kind: type[Record]) -> None:
        logged = an_anomaly(type=type_of(kind), details=details_of(kind))

        assert Anomaly.model_validate(logged.to_json()) == logged

    def test_of_a_whole_board(self) -> None:
        state = board(
            *(task_in(status, name=f"t-{status}") for status in Status),
            human_notes=records_by_id([Note(id="note-1", timestamp=NOW, message="m", about="t-IDLE")]),
            anomalies=records_by_id([an_anomaly(type="trade_off", details=TradeOff(what="w", why="y"))]),
            sprint=Sprint(tasks=("t-IDLE",), deadline=NOW),
            archived=MappingProxyType({"t0": Status.MERGED}),
            config=Config.model_validate({"agents": {"overrides": {"reviewer": {"model": "opus"}}}}),
        )

        assert State.model_validate(state.to_json()) == state

    def test_what_is_at_its_default_is_not_written(self) -> None:
        """The file shows what somebody said, not forty empty fields a task."""
        said = {"id", "description", "status", "position", "created", "created_by", "history"}
        assert set(new_task().to_json()) == said
        assert new_task().to_json()["position"] == {"phase": "CODE", "iterations": {"CODE": 1}}
        assert set(board(workflow=Adopted()).to_json()) == {"revision", "goal"}

    def test_the_words_of_the_file_are_those_of_the_contract(self) -> None:
        assert TaskScope(include=("src",), exclude=("docs",)).to_json() == {"in": ["src"], "out": ["docs"]}
        assert Note(id="n", timestamp=NOW, message="m", about="t1").to_json()["for"] == "t1"
        assert {"from", "to"} < set(task_in(Status.WORKING).history[-1].to_json())


class TestSections:
    def test_a_list_with_a_repeated_id_is_refused(self) -> None:
        task = new_task().to_json()

        with pytest.raises(ValidationError, match="the id 't1' is used twice"):
            State.model_validate({**board().to_json(), "tasks": [task, task]})

    def test_an_entry_without_an_id_is_refused(self) -> None:
        with pytest.raises(ValidationError, match="every entry needs an id"):
            State.model_validate({**board().to_json(), "tasks": [{"description": "d"}]})

    def test_a_key_that_is_not_the_id_is_refused(self) -> None:
        """Everybody finds a task by its key and then works on its id."""
        with pytest.raises(ValidationError, match="the entry under 't2' says that its id is 't1'"):
            State.model_validate({**board().to_json(), "tasks": {"t2": new_task("t1").to_json()}})

    def test_order_is_kept(self) -> None:
        names = ["t10", "t2", "t1"]

        assert list(State.model_validate(board(*map(new_task, names)).to_json()).tasks) == names

    def test_a_task_that_is_not_there_is_named(self) -> None:
        with pytest.raises(NotThere, match="there is no task 't9'; `liza status` lists the tasks"):
            board().task("t9")

    def test_the_status_of_a_task_is_known_after_it_left(self) -> None:
        state = board(new_task("t1"), archived={"t0": Status.MERGED})

        assert [state.status_of(name) for name in ("t1", "t0", "t9")] == [Status.IDLE, Status.MERGED, None]

    def test_a_revision_counts_from_one(self) -> None:
        with pytest.raises(ValidationError, match="revision counts from 1"):
            State.model_validate({**board().to_json(), "revision": 0})


class TestHistoryShown:
    def test_the_latest_entries_stay_and_the_rest_is_counted(self) -> None:
        task = task_in(Status.MERGED)

        trimmed = task.with_recent_history()

        assert trimmed.history == task.history[-SHOWN_EVENTS:]
        assert trimmed.event_count == task.event_count == len(task.history)
        assert trimmed.with_recent_history() is trimmed


class TestConfig:
    @pytest.mark.parametrize("number", [float("inf"), float("nan"), -1.0])
    def test_a_limit_is_a_number_that_json_can_say(self, number: float) -> None:
        with pytest.raises(ValidationError):
            Limits(lease_seconds=number)
        with pytest.raises(ValidationError):
            Budget(run_usd=number)

    def test_there_is_a_cap_on_spending_by_default(self) -> None:
        assert Config().budget.run_usd > 0
        assert Config().budget.task_usd > 0

    def test_the_limits_are_those_of_the_contract(self) -> None:
        limits = Config().limits

        assert (limits.max_coder_iterations, limits.max_review_cycles) == (10, 5)
        assert (limits.max_rejections, limits.max_same_reason, limits.assumption_budget) == (3, 2, 5)


class TestLeaseIndex:
    @given(
        st.lists(
            st.dictionaries(st.sampled_from("abcde"), st.sampled_from(["", "x", "y", "z"]), max_size=5),
            max_size=8,
        )
    )
    def test_it_is_the_same_whatever_board_was_asked_for_before(self, boards: list[dict[str, str]]) -> None:
        """It is carried on from one board to the next, where tasks come, go, move and change hands."""
        for holders in boards:
            tasks = records_by_id(new_task(name).replace(lease=held(by)) for name, by in holders.items())

            index = index_leases(tasks)

            assert index.leases == {name: task.lease for name, task in tasks.items() if task.lease}
            for found, key in ((index.by_holder, "holder"), (index.by_token, "token")):
                assert {
                    one: sorted(name for name, by in holders.items() if by and getattr(held(by), key) == one)
                    for one in {getattr(lease, key) for lease in index.leases.values()}
                } == {one: sorted(names) for one, names in found.items()}


def held(by: str) -> Lease | None:
    """Return a lease for *by*; z has the token of y."""
    token = "y" if by == "z" else by
    return Lease(holder=by, token=token, expires=datetime(2026, 1, 1, tzinfo=UTC)) if by else None
