"""What is kept of an agent's words: not too much of them, and no secret."""

from __future__ import annotations

import os
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liza.domain.answer_parsing import ParsedAnswer, UnreadableAnswer, parse_answer
from liza.domain.answers import Step
from liza.system.files import LONGEST, Mask, secrets_of
from liza.system.process import HEAD, TAIL, OutputLog, ProcessPipes, cut_line
from liza.system.run_control import RunControl
from liza.system.sandbox.bubblewrap import ALLOWED, allowed_environment

BEGINNING = 2 * HEAD  # bytes; far less than is kept of a real agent
SECRET = "correct-horse-battery-staple"  # noqa: S105 - the tests are that it does not get out
TOKEN = "sk-" + "a1B2" * 10
TEXT = f"before {SECRET}\nthe task-greet-the-world-and-all-in-it {TOKEN} after\n{TOKEN}".encode()
MASKED = b"before [masked]\nthe task-greet-the-world-and-all-in-it [masked] after\n[masked]"


def masked(*pieces: bytes) -> bytes:
    mask = Mask([SECRET])
    return b"".join([*(mask.feed(piece) for piece in pieces), mask.rest()])


class TestMasking:
    def test_known_values_and_well_known_tokens_are_masked(self) -> None:
        """Words that merely look alike are not: a task's id is no key."""
        assert masked(TEXT) == MASKED

    @given(st.lists(st.integers(0, 400), max_size=6))
    def test_a_secret_in_pieces_is_found(self, cuts: list[int]) -> None:
        """Pipes cut where they like."""
        data = (f"{SECRET} " * 3 + "x" * LONGEST + f" {SECRET}\n{SECRET}").encode()
        places = [0, *sorted(cuts), len(data)]
        pieces = [data[start:end] for start, end in pairwise(places)]

        assert SECRET.encode() not in masked(*pieces)
        assert masked(*pieces) == data.replace(SECRET.encode(), b"[masked]")

    def test_whole_lines_are_not_held_back(self) -> None:
        """Somebody may be reading along."""
        assert Mask([SECRET]).feed(b"one\ntwo\nthr") == b"one\ntwo\n"

    def test_secrets_are_known_by_the_names_of_their_variables(self) -> None:
        """A short value is a word, and would be masked everywhere."""
        found = secrets_of({"API_KEY": SECRET, "GH_TOKEN": "yes", "HOME": "/nowhere"})

        assert found == [SECRET, "yes"]
        assert b"yes" in Mask(found).feed(b"yes\n")


class TestSpooling:
    def output(self, path: Path, *pieces: bytes) -> OutputLog:
        output = OutputLog(path, [SECRET], on_disk=BEGINNING)
        for piece in pieces:
            output.take(piece)
        output.close()
        return output

    def test_what_fits_is_kept_whole(self, tmp_path: Path) -> None:
        """Nothing is cut that need not be."""
        output = self.output(tmp_path / "out", b"one\n", b"two\n")

        assert output.text() == "one\ntwo\n"
        assert (tmp_path / "out").read_bytes() == b"one\ntwo\n"

    def test_the_beginning_and_the_end_are_kept(self, tmp_path: Path) -> None:
        """With a line in between that says how much is missing."""
        pieces = [b"first\n", *[b"x" * TAIL] * 4, b"\nlast\n"]
        output = self.output(tmp_path / "out", *pieces)
        total = sum(map(len, pieces))
        kept = (tmp_path / "out").read_bytes()
        note = cut_line(total - BEGINNING - TAIL).encode()

        assert output.total == total
        assert output.text().startswith("first\n")
        assert output.text().endswith("\nlast\n")
        assert len(output.text()) == HEAD + TAIL + len(cut_line(total - HEAD - TAIL))
        # What is held back to see a secret whole is lost where the stream is cut.
        assert BEGINNING + TAIL - LONGEST <= len(kept) - len(note) <= BEGINNING + TAIL
        assert b" bytes cut here]\n" in kept

    def test_no_half_secret_stands_where_the_beginning_ends(self, tmp_path: Path) -> None:
        """Half a key is half found."""
        half = len(SECRET) // 2
        self.output(tmp_path / "out", b"." * (BEGINNING - half) + SECRET.encode(), *[b"." * TAIL] * 3)

        assert SECRET[:half].encode() not in (tmp_path / "out").read_bytes()

    @pytest.mark.parametrize("more", [0, LONGEST, 2 * LONGEST])
    def test_no_half_secret_stands_where_the_end_begins(self, tmp_path: Path, more: int) -> None:
        """Nor where it came in two pieces of which only one is kept."""
        half = len(SECRET) // 2
        first, second = SECRET[:half].encode(), SECRET[half:].encode()
        self.output(
            tmp_path / "out",
            b"." * BEGINNING,
            b"." * TAIL + first,
            second + b"." * (TAIL + more - len(second)),
        )

        assert second not in (tmp_path / "out").read_bytes()

    def test_what_is_left_in_a_pipe_is_taken_without_waiting(self, tmp_path: Path) -> None:
        """Somebody who cannot be killed may hold it open for ever."""
        reader, writer = (
            os.fdopen(number, mode, 0) for number, mode in zip(os.pipe(), ("rb", "wb"), strict=True)
        )
        output = OutputLog(tmp_path / "out")
        pipes = ProcessPipes(RunControl())
        with reader, writer, closing(pipes), closing(output):
            pipes.read_into(reader, output, lambda: None)
            writer.write(b"last words\n")
            pipes.drain()

        assert output.text() == "last words\n"


class TestAnswers:
    """What was cut is never read as if it were the whole."""

    def kept(self, tmp_path: Path, text: str) -> str:
        output = OutputLog(tmp_path / "out")
        output.take(text.encode())
        output.close()
        return output.text()

    def plan(self, tasks: int) -> str:
        row = "  - id: t{0}\n    description: do number {0} of all\n    done_when: [file {0} is there]\n"
        rows = [row.format(number) for number in range(tasks)]
        return f"```liza\ntasks:\n{''.join(rows)}```\n"

    def test_a_plan_that_is_too_long_is_refused_with_a_sentence(self, tmp_path: Path) -> None:
        """Ten thousand tasks were read as some thousands: those before and behind the cut."""
        found = parse_answer(self.kept(tmp_path, self.plan(20_000)), Step.PLAN)
        assert isinstance(found, UnreadableAnswer)
        assert "too long to keep" in found.why
        assert "a plan of fewer tasks" in found.why

    def test_an_earlier_answer_does_not_stand_in_for_one_that_was_cut(self, tmp_path: Path) -> None:
        found = parse_answer(self.kept(tmp_path, self.plan(1) + self.plan(20_000)), Step.PLAN)
        assert isinstance(found, UnreadableAnswer)

    def test_an_answer_behind_a_long_output_is_read(self, tmp_path: Path) -> None:
        found = parse_answer(self.kept(tmp_path, "x" * (HEAD + 2 * TAIL) + "\n" + self.plan(1)), Step.PLAN)
        assert isinstance(found, ParsedAnswer)


class TestEnvironment:
    def test_only_names_on_the_list_pass(self) -> None:
        """The list holds no name of a secret."""
        ours = {
            "PATH": "/bin",
            "LC_ALL": "C",
            "GIT_AUTHOR_NAME": "Ada",
            "AWS_SECRET_ACCESS_KEY": "x",
            "FOO": "y",
        }

        assert allowed_environment(ours) == {"PATH": "/bin", "LC_ALL": "C", "GIT_AUTHOR_NAME": "Ada"}
        assert allowed_environment(ours, ["FOO"]).keys() - allowed_environment(ours).keys() == {"FOO"}
        assert secrets_of(dict.fromkeys(ALLOWED, "value")) == []
