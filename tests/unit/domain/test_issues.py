"""Issues as work: what is asked for, what waits for what, and the names of branches."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liza.domain.issues import (
    MOST_ISSUES,
    Issue,
    IssueProblem,
    IssueSelection,
    UnfitIssue,
    branch_for,
    dependencies_in,
    existing_branch,
    issue_of_branch,
    parse_selection,
    queue_issues,
    with_dependants,
)
from liza.errors import UsageError


def issue(number: int, body: str = "do it", **facts: object) -> Issue:
    return Issue.model_validate({"number": number, "title": f"Issue {number}", "body": body, **facts})


class TestSelection:
    @pytest.mark.parametrize(
        ("text", "wanted"),
        [
            ("8", IssueSelection((8,))),
            ("1-5,8", IssueSelection((1, 2, 3, 4, 5, 8))),
            (" #3 - #4 , 3, 1", IssueSelection((3, 4, 1))),
            ("label:agent", IssueSelection(label="agent")),
            ("LABEL: good first issue", IssueSelection(label="good first issue")),
        ],
    )
    def test_numbers_ranges_and_labels_are_taken(self, text: str, wanted: IssueSelection) -> None:
        assert parse_selection(text) == wanted

    @pytest.mark.parametrize("text", ["", ",", "1,,2", "0", "5-1", "a", "1-", "-3", "1.5", "²", "1-2-3"])
    def test_anything_else_is_refused_with_the_part_that_is_wrong(self, text: str) -> None:
        with pytest.raises(
            UsageError, match=r"^'.*' is no issue number or range; write issues as `1-5,8` or"
        ):
            parse_selection(text)

    def test_a_slip_does_not_ask_for_thousands(self) -> None:
        with pytest.raises(
            UsageError, match=rf"more issues than the {MOST_ISSUES} that may be asked for at once$"
        ):
            parse_selection("1-999999999")
        with pytest.raises(UsageError, match="names no label"):
            parse_selection("label: ")


class TestDependencies:
    @pytest.mark.parametrize(
        ("body", "numbers"),
        [
            ("Depends on #3.", (3,)),
            ("blocked by #3, #4 and #5; then more", (3, 4, 5)),
            ("Do it AFTER #12\nrequires: #7", (12, 7)),
            ("depends\non #3 and depends on #3", (3,)),
            ("see #3, fixes #4, the day after tomorrow #5", ()),
            ("depends on other/project#3", ()),
            ("`depends on #3` and <!-- blocked by #4 -->", ()),
            ("```\ndepends on #3\n```\nafter #9", (9,)),
            ("depends on #0", ()),
        ],
    )
    def test_the_phrases_count_and_quotations_do_not(self, body: str, numbers: tuple[int, ...]) -> None:
        assert dependencies_in(body) == numbers

    @pytest.mark.parametrize("piece", ["<!--", "```\n", "`", "after #1,", "~~~\n"])
    def test_a_long_text_of_beginnings_without_ends_is_read(self, piece: str) -> None:
        dependencies_in(piece * (200_000 // len(piece)))

    def test_parents_come_first_and_lower_numbers_before_higher(self) -> None:
        queue = queue_issues([issue(1, "after #9"), issue(9), issue(4), issue(2, "requires #1")])

        assert queue.order == (4, 9, 1, 2)
        assert queue.waits_for == {4: (), 9: (), 1: (9,), 2: (1,)}
        assert queue.blocked == {}

    def test_several_parents_are_chained(self) -> None:
        """The branch of the last parent has the work of all: a child begins on one branch."""
        queue = queue_issues([issue(1), issue(2), issue(3), issue(5, "depends on #3, #1")])

        assert queue.waits_for == {1: (), 2: (), 3: (1,), 5: (1, 3)}

    def test_a_circle_is_told_and_blocks_only_what_is_in_it_or_waits_for_it(self) -> None:
        queue = queue_issues(
            [issue(1, "after #2"), issue(2, "after #1"), issue(3, "after #2"), issue(4), issue(5, "after #5")]
        )

        assert queue.order == (4,)
        assert re.match(
            r"#\d waits for #\d waits for #\d: none of them can begin; remove one", queue.blocked[1]
        )
        assert queue.blocked[2] == queue.blocked[1]
        assert queue.blocked[3] == "issue #3 waits for #2, which is blocked"
        assert queue.blocked[5].startswith("#5 waits for #5: ")

    def test_a_parent_that_nobody_works_on_blocks_unless_it_is_done(self) -> None:
        unfit = UnfitIssue(8, IssueProblem.EMPTY)
        batch = [issue(1, "after #8"), issue(2, "after #9"), issue(3, "after #7")]

        queue = queue_issues(batch, ended=[7], unfit=[unfit])

        assert queue.order == (3,)
        assert queue.blocked == {
            1: "issue #1 waits for #8: issue #8 has no text; say in it what is to be done",
            2: "issue #2 waits for #9: nobody works on #9; add it to the issues, or close it when it is done",
        }

    @given(st.dictionaries(st.integers(1, 9), st.sets(st.integers(1, 11)), max_size=9))
    def test_every_issue_is_either_ordered_behind_its_parents_or_told(
        self, waits: dict[int, set[int]]
    ) -> None:
        batch = [
            issue(number, " ".join(f"after #{parent}" for parent in parents) or "do it")
            for number, parents in waits.items()
        ]

        queue = queue_issues(batch)

        assert {*queue.order} | set(queue.blocked) == set(waits)
        assert not {*queue.order} & set(queue.blocked)
        for number in queue.order:
            before = set(queue.order[: queue.order.index(number)])
            assert waits[number] <= before
            assert set(queue.waits_for[number]) <= before

    def test_what_a_run_blocks_blocks_what_waits_for_it(self) -> None:
        queue = queue_issues([issue(1), issue(2, "after #1"), issue(3, "after #2"), issue(4)])

        assert with_dependants(queue.waits_for, {1: "the judge said so"}) == {
            1: "the judge said so",
            2: "issue #2 waits for #1, which is blocked",
            3: "issue #3 waits for #2, which is blocked",
        }


class TestBranches:
    @pytest.mark.parametrize(
        ("title", "labels", "branch"),
        [
            ("Fix the crash!", (), "feature/issue-7-fix-the-crash"),
            (
                "Größe: ändern & prüfen",
                ("Good First Issue", "x"),
                "good-first-issue/issue-7-groe-andern-prufen",
            ),
            ("修复", ("!",), "feature/issue-7-work"),
            ("a" * 100, ("bug",), f"bug/issue-7-{'a' * 40}"),
            ("x" * 39 + " y z", (), f"feature/issue-7-{'x' * 39}"),
        ],
    )
    def test_a_branch_is_named_after_label_number_and_title(
        self, title: str, labels: tuple[str, ...], branch: str
    ) -> None:
        assert branch_for(issue(7, title=title, labels=labels)) == branch

    @given(st.text(min_size=1).filter(str.strip), st.integers(1, 10**6))
    def test_whatever_the_title_is_git_takes_the_name_and_it_is_found_again(
        self, title: str, number: int
    ) -> None:
        branch = branch_for(issue(number, title=title))

        assert re.fullmatch(r"[a-z0-9-]+/issue-\d+-[a-z0-9][a-z0-9-]*", branch)
        assert issue_of_branch(branch) == number
        assert existing_branch(number, ["main", branch]) == branch
        assert existing_branch(number + 10**6, ["main", branch]) is None
