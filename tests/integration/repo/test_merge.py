"""Merging without a checkout, proof, and rechecking history with git alone."""

from pathlib import Path

import pytest

from liza.errors import UnfitRepository
from liza.repo.merge import (
    Conflict,
    Landed,
    Merged,
    MergeDescription,
    Overtaken,
    Trailer,
    commit_merge,
    land_merge,
    merge,
    merge_doubts,
    parse_trailers,
    resolve_conflict,
)
from liza.repo.pool import scratch_tree
from liza.repo.verify import ViolationKind, verify_history
from tests.support.repos import INTEGRATION, NOW, Hand, Home, snapshot


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.repository.ensure_branch("integration")
    return home


def account(task: str) -> MergeDescription:
    facts = {Trailer.TASK: task, Trailer.VERDICT: "approve", Trailer.APPROVED_BY: "reviewer-1"}
    return MergeDescription(f"Merge {task}", {**facts, Trailer.GATES: "test", Trailer.AGENT: "claude"})


def integrated(home: Home, task: str, commit: str) -> str:
    """Merge as the daemon does, with the trivial resolved."""
    onto = str(home.repository.commit_at(INTEGRATION))
    found = merge(home.repository, onto, commit)
    merged = resolve_conflict(home.repository, found) if isinstance(found, Conflict) else found
    assert merged
    sealed = commit_merge(home.repository, merged, account(task), onto=onto, commit=commit, at=NOW)
    assert land_merge(home.repository, INTEGRATION, sealed, onto=onto, task=task) == Landed(sealed)
    assert merge_doubts(home.repository, INTEGRATION, sealed, commit=commit, tree=merged.tree) == []
    return sealed


def worked(home: Home, task: str, files: dict[str, str], base: str | None = None) -> str:
    _, agent = home.task(task, base)
    return agent.commit(files)


class TestMerging:
    def test_no_checkout_is_touched(self, home: Home) -> None:
        """Pains, B: merging switched the branch in the user's own checkout."""
        commit = worked(home, "t1", {"c.txt": "c\n"})
        home.write("a.txt", "dirty\n")
        home.write("c.txt", "untracked, and in the way of a checkout\n")
        before = (snapshot(home.directory), home.git("status", "--porcelain=v2", "--branch"))

        sealed = integrated(home, "t1", commit)

        assert (snapshot(home.directory), home.git("status", "--porcelain=v2", "--branch")) == before
        assert home.git("show", f"{sealed}:c.txt") == "c"
        assert home.git("show", "--no-patch", "--format=%P", sealed) == f"{home.base} {commit}"

    def test_what_the_merge_commit_says(self, home: Home) -> None:
        """The facts of the merge travel with it."""
        commit = worked(home, "t1", {"c.txt": "c\n"})
        sealed = integrated(home, "t1", commit)

        message = home.git("show", "--no-patch", "--format=%B", sealed)
        assert message.startswith("Merge t1\n\nLiza-Task: t1\n")
        assert parse_trailers(message)[Trailer.REVIEWED_COMMIT] == commit
        trailers = home.git(
            "show", "--no-patch", "--format=%(trailers:key=Liza-Approved-By,valueonly)", sealed
        )
        assert trailers == "reviewer-1"

    def test_a_conflict_names_its_paths_and_kinds(self, home: Home) -> None:
        """INTEGRATION_FAILED says which files; the ref has not moved."""
        one = worked(home, "t1", {"a.txt": "one\nTWO\nthree\n", "new.txt": "1\n"})
        _, agent = home.task("t2")
        agent.write("a.txt", "one\n2\nthree\n")
        agent.write("new.txt", "2\n")
        (agent.directory / "src" / "b.py").unlink()
        other = agent.commit()
        integrated(home, "t1", one)
        head = home.repository.commit_at(INTEGRATION)
        onto = Hand(home.worktrees.take(home.directory / ".worktrees" / ".scratch-9", str(head)).path)
        changed = onto.commit({"src/b.py": "B = 2\n"})

        found = merge(home.repository, changed, other)

        assert isinstance(found, Conflict)
        assert found.paths == ("a.txt", "new.txt", "src/b.py")
        assert found.kinds == ("CONFLICT (contents)", "CONFLICT (modify/delete)")
        assert str(found).endswith("in a.txt, new.txt, src/b.py")
        assert resolve_conflict(home.repository, found) is None
        assert home.repository.commit_at(INTEGRATION) == head

    def test_trivial_conflicts_are_resolved_in_the_tree(self, home: Home) -> None:
        """And everything else that both sides did is there too."""
        one = worked(home, "t1", {"src/b.py": "B = 1\n\n\ndef one():\n    return 1\n", "c.txt": "c\n"})
        other = worked(home, "t2", {"src/b.py": "B = 1\n\n\ndef two():\n    return 2\n", "d.txt": "d\n"})
        integrated(home, "t1", one)

        sealed = integrated(home, "t2", other)

        assert home.git("show", f"{sealed}:src/b.py") == (
            "B = 1\n\n\ndef one():\n    return 1\n\n\ndef two():\n    return 2"
        )
        assert home.git("ls-tree", "--name-only", sealed).split() == [
            ".gitignore",
            "a.txt",
            "c.txt",
            "d.txt",
            "src",
        ]
        assert verify_history(home.repository, INTEGRATION, since=home.base) == []

    def test_one_hard_conflict_leaves_all_unresolved(self, home: Home) -> None:
        """Half a resolution is none."""
        one = worked(home, "t1", {"src/b.py": "B = 1\n\n\ndef one(): ...\n", "a.txt": "1\n"})
        other = worked(home, "t2", {"src/b.py": "B = 1\n\n\ndef two(): ...\n", "a.txt": "2\n"})
        integrated(home, "t1", one)

        found = merge(home.repository, INTEGRATION, other)

        assert isinstance(found, Conflict)
        assert resolve_conflict(home.repository, found) is None

    @pytest.mark.parametrize(
        ("ours", "theirs"),
        [(b"B = 1\n\xff\xfe1\n", b"B = 1\n\xff\xfe2\n"), (b"B = 1\n\0a\n", b"B = 1\n\0b\n")],
        ids=["not UTF-8", "binary"],
    )
    def test_what_is_no_text_is_not_resolved(self, home: Home, ours: bytes, theirs: bytes) -> None:
        """Bytes are not lines."""
        commits = []
        for task, content in (("t1", ours), ("t2", theirs)):
            _, agent = home.task(task)
            (agent.directory / "src" / "b.py").write_bytes(content)
            commits.append(agent.commit())

        found = merge(home.repository, *commits)

        assert isinstance(found, Conflict)
        assert resolve_conflict(home.repository, found) is None

    def test_committed_attributes_count_and_the_checkout_s_do_not(self, home: Home) -> None:
        """A merge gives the same tree wherever it is made, and checked."""
        base = home.commit({".gitattributes": "a.txt merge=union\n"})
        home.repository.move_ref(INTEGRATION, to=base, expected=home.base, why="test")
        one = worked(home, "t1", {"a.txt": "one\nA\ntwo\nthree\n", "src/b.py": "B = 2\n"}, base)
        other = worked(home, "t2", {"a.txt": "one\nB\ntwo\nthree\n", "src/b.py": "B = 3\n"}, base)
        home.write(".gitattributes", "* merge=union\n")

        found = merge(home.repository, one, other)

        assert isinstance(found, Conflict)
        assert found.paths == ("src/b.py",)
        assert home.git("show", f"{found.tree}:a.txt") == "one\nA\nB\ntwo\nthree"

    def test_merging_again_changes_nothing(self, home: Home) -> None:
        """A step that is repeated after a crash."""
        commit = worked(home, "t1", {"c.txt": "c\n"})
        sealed = integrated(home, "t1", commit)

        assert merge(home.repository, sealed, commit) == Merged(home.repository.tree_of(sealed))
        assert land_merge(home.repository, INTEGRATION, sealed, onto=home.base, task="t1") == Landed(sealed)


class TestLanding:
    def sealed(self, home: Home) -> tuple[str, str, str]:
        commit = worked(home, "t1", {"c.txt": "c\n"})
        merged = merge(home.repository, home.base, commit)
        assert isinstance(merged, Merged)
        sealed = commit_merge(home.repository, merged, account("t1"), onto=home.base, commit=commit, at=NOW)
        return sealed, commit, merged.tree

    def test_the_gate_sees_what_will_be_merged_and_red_moves_nothing(self, home: Home) -> None:
        """Pains, B: a failed test after a three-commit fast-forward left two commits on integration."""
        for name in ("c", "d"):
            worked(home, "t1", {f"{name}.txt": "x\n"})
        sealed, _, tree = self.sealed(home)
        with scratch_tree(home.worktrees, sealed) as path:
            assert Hand(path).git("rev-parse", "HEAD^{tree}") == tree
            assert (path / "d.txt").exists()

        assert home.repository.commit_at(INTEGRATION) == home.base

    def test_a_lost_race_is_a_value(self, home: Home) -> None:
        """Then the merge is made again on the new head."""
        sealed, commit, tree = self.sealed(home)
        other = home.commit({"d.txt": "d\n"})
        home.repository.move_ref(INTEGRATION, to=other, expected=home.base, why="somebody was faster")

        assert land_merge(home.repository, INTEGRATION, sealed, onto=home.base, task="t1") == Overtaken(other)
        assert merge_doubts(home.repository, INTEGRATION, sealed, commit=commit, tree=tree) == [
            f"integration does not contain the merge {sealed[:12]}",
            f"integration does not contain the work {commit[:12]}",
        ]

    def test_a_branch_that_vanished(self, home: Home) -> None:
        """It is not made again behind the user's back."""
        sealed, _, _ = self.sealed(home)
        home.git("branch", "-D", "integration")

        assert land_merge(home.repository, INTEGRATION, sealed, onto=home.base, task="t1") == Overtaken(None)

    def test_a_branch_that_the_user_checked_out_meanwhile(self, home: Home) -> None:
        """Its files would look changed."""
        sealed, _, _ = self.sealed(home)
        home.git("checkout", "--quiet", "integration")

        with pytest.raises(UnfitRepository, match="checked out in"):
            land_merge(home.repository, INTEGRATION, sealed, onto=home.base, task="t1")
        assert home.repository.commit_at(INTEGRATION) == home.base

    def test_merged_is_what_is_proven(self, home: Home) -> None:
        """Pains, A5: "merged" was recorded, and the work was not there."""
        sealed, commit, tree = self.sealed(home)

        assert merge_doubts(home.repository, INTEGRATION, "0" * 40, commit=commit, tree=tree) == [
            "the merge commit 000000000000 does not exist"
        ]
        land_merge(home.repository, INTEGRATION, sealed, onto=home.base, task="t1")
        assert merge_doubts(home.repository, INTEGRATION, sealed, commit=commit, tree=home.base) == [
            f"the merge {sealed[:12]} is not the tree that was judged"
        ]


class TestVerify:
    def problems(self, home: Home) -> list[ViolationKind]:
        return [finding.problem for finding in verify_history(home.repository, INTEGRATION, since=home.base)]

    def forged(self, home: Home, tree: str, *parents: str, message: str) -> None:
        commit = home.repository.commit_tree(tree, parents=parents, message=message, at=NOW)
        assert home.repository.move_ref(INTEGRATION, to=commit, expected=parents[0], why="forged")

    def test_a_history_of_merges_is_clean(self, home: Home) -> None:
        """With and without a beginning."""
        for number in range(3):
            integrated(home, f"t{number}", worked(home, f"t{number}", {f"f{number}": "x\n"}))

        assert verify_history(home.repository, INTEGRATION, since=home.base) == []
        assert verify_history(home.repository, INTEGRATION) == []

    def test_a_commit_that_nobody_reviewed(self, home: Home) -> None:
        """An agent may write to the branch itself."""
        integrated(home, "t1", worked(home, "t1", {"c.txt": "c\n"}))
        head = str(home.repository.commit_at(INTEGRATION))
        self.forged(home, home.repository.tree_of(head), head, message="sneaked in\n\nLiza-Task: t2\n")

        assert self.problems(home) == [ViolationKind.NOT_A_MERGE]

    def test_a_merge_without_its_facts(self, home: Home) -> None:
        """A merge by hand is one that nobody approved."""
        commit = worked(home, "t1", {"c.txt": "c\n"})
        self.forged(home, home.repository.tree_of(commit), home.base, commit, message="by hand\n")

        assert set(self.problems(home)) == {ViolationKind.TRAILER_MISSING}

    def test_another_commit_than_the_reviewed_one(self, home: Home) -> None:
        """The branch moved between the verdict and the merge."""
        commit = worked(home, "t1", {"c.txt": "c\n"})
        message = (
            f"m\n\nLiza-Task: t1\nLiza-Reviewed-Commit: {home.base}\nLiza-Verdict: a\nLiza-Approved-By: b\n"
        )
        self.forged(home, home.repository.tree_of(commit), home.base, commit, message=message)

        assert self.problems(home) == [ViolationKind.OTHER_COMMIT]

    def test_another_tree_than_the_merged_one(self, home: Home) -> None:
        """Something was slipped into the merge; a mark on a path that did not conflict does not help."""
        commit = worked(home, "t1", {"c.txt": "c\n"})
        evil = worked(home, "t2", {"c.txt": "evil\n"})
        found = account("t1").trailers
        facts = "\n".join(f"{key}: {value}" for key, value in found.items())
        message = f'm\n\n{facts}\nLiza-Reviewed-Commit: {commit}\nLiza-Resolved: ["c.txt"]\n'
        self.forged(home, home.repository.tree_of(evil), home.base, commit, message=message)

        found_wrong = verify_history(home.repository, INTEGRATION, since=home.base)
        assert [finding.sentence for finding in found_wrong] == [
            f"c.txt is not what merging {commit[:12]} into {home.base[:12]} gives"
        ]

    def test_a_conflict_that_was_resolved_without_saying_so(self, home: Home) -> None:
        """The trailer names the paths, and only those may differ."""
        one = worked(home, "t1", {"a.txt": "1\n"})
        other = worked(home, "t2", {"a.txt": "2\n"})
        head = integrated(home, "t1", one)
        facts = "\n".join(f"{key}: {value}" for key, value in account("t2").trailers.items())
        message = f"m\n\n{facts}\nLiza-Reviewed-Commit: {other}\n"
        self.forged(home, home.repository.tree_of(other), head, other, message=message)

        assert self.problems(home) == [ViolationKind.OTHER_TREE]

    def test_a_task_merged_twice(self, home: Home) -> None:
        """A crash between ref and board must not merge again."""
        integrated(home, "t1", worked(home, "t1", {"c.txt": "c\n"}))
        integrated(home, "t1", worked(home, "t1", {"d.txt": "d\n"}))

        assert self.problems(home) == [ViolationKind.MERGED_TWICE]

    def test_a_history_that_was_rewritten(self, home: Home) -> None:
        """What was merged is not on the branch any more."""
        sealed = integrated(home, "t1", worked(home, "t1", {"c.txt": "c\n"}))
        home.git("branch", "--force", "integration", home.base)

        found = verify_history(home.repository, INTEGRATION, since=sealed)
        assert [finding.problem for finding in found] == [ViolationKind.REWRITTEN]
