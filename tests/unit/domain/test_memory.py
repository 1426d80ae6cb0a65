"""What is remembered of a task: how long, and how much of it is shown."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liza.domain.memory import (
    BUDGET,
    MEMORY_TYPES,
    MOST_ENTRIES,
    MemoryEntry,
    MemoryType,
    Retention,
    after_phase,
    feedback_for,
    render_memory,
    with_entries,
)

NOW: Final = datetime(2026, 1, 31, 12, tzinfo=UTC)


def entry(kind: MemoryType, content: str = "x", task: str = "issue-7", iteration: int = 1) -> MemoryEntry:
    return MemoryEntry(type=kind, content=content, task=task, phase="IMPLEMENT", iteration=iteration, at=NOW)


entries: Final = st.builds(
    entry,
    st.sampled_from(MemoryType),
    st.text(min_size=1, max_size=400).filter(str.strip),
    st.sampled_from(["issue-7", "issue-8"]),
    st.integers(1, 5),
)


def test_a_step_that_is_done_is_no_longer_pending() -> None:
    pending = [
        entry(MemoryType.STEP_PENDING, "write"),
        entry(MemoryType.STEP_PENDING, "test"),
        entry(MemoryType.STEP_PENDING, "write", task="issue-8"),
    ]

    memory = with_entries((), [*pending, entry(MemoryType.STEP_DONE, "write")])

    assert [(one.type, one.content, one.task) for one in memory] == [
        (MemoryType.STEP_PENDING, "test", "issue-7"),
        (MemoryType.STEP_PENDING, "write", "issue-8"),
        (MemoryType.STEP_DONE, "write", "issue-7"),
    ]


def test_the_oldest_of_a_task_go_and_those_of_another_stay() -> None:
    others = with_entries((), [entry(MemoryType.KEY_FACT, "other", task="issue-8")])

    memory = with_entries(
        others, [entry(MemoryType.KEY_FACT, str(number)) for number in range(MOST_ENTRIES + 5)]
    )

    assert [one.content for one in memory][:2] == ["other", "5"]
    assert len(memory) == MOST_ENTRIES + 1


@pytest.mark.parametrize("kind", MemoryType)
def test_the_table_says_what_outlives_a_phase(kind: MemoryType) -> None:
    memory = (entry(kind), entry(kind, task="issue-8"))

    kept = after_phase(memory, "issue-7")

    assert (memory[0] in kept) == (MEMORY_TYPES[kind].retention is Retention.TASK)
    assert memory[1] in kept


def test_facts_decisions_results_and_files_outlive_a_phase() -> None:
    assert {kind for kind, row in MEMORY_TYPES.items() if row.retention is Retention.TASK} == {
        MemoryType.KEY_FACT,
        MemoryType.DECISION,
        MemoryType.PHASE_RESULT,
        MemoryType.FILE_MODIFIED,
    }


def test_a_worker_reads_what_was_said_of_the_round_before() -> None:
    memory = (
        entry(MemoryType.EVAL_FEEDBACK, "old", iteration=1),
        entry(MemoryType.EVAL_FEEDBACK, "advice", iteration=2),
        entry(MemoryType.JUDGE_DIRECTIVE, "order", iteration=2),
        entry(MemoryType.KEY_FACT, "fact", iteration=2),
    )

    assert [one.content for one in feedback_for(memory, "issue-7", "IMPLEMENT", 3)] == ["order", "advice"]
    assert feedback_for(memory, "issue-7", "DOCS", 3) == ()


@given(st.lists(entries, max_size=60), st.integers(0, 5000))
def test_the_budget_holds_whatever_is_remembered(found: list[MemoryEntry], budget: int) -> None:
    text = render_memory(with_entries((), found), "issue-7", budget)

    assert len(text) <= budget


@given(st.lists(entries, max_size=60))
def test_one_long_section_hides_no_other(found: list[MemoryEntry]) -> None:
    memory = with_entries((), found)
    kinds = [
        kind for kind in MEMORY_TYPES if any(one.type is kind and one.task == "issue-7" for one in memory)
    ]

    text = render_memory(memory, "issue-7", BUDGET)

    assert [line for line in text.splitlines() if line.startswith("### ")] == [
        f"### {MEMORY_TYPES[kind].heading}" for kind in kinds
    ]
