"""What people expect of a command line: completion, help with examples, a way into a worktree."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shlex
import shutil
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from liza.cli.completion import HIDDEN, SHELLS, first_words
from liza.cli.examples import EXAMPLES
from liza.cli.main import SECTIONS, parser
from liza.cli.registry import COMMANDS
from liza.domain.changes import HUMAN
from liza.domain.lifecycle import Block
from tests.support.pseudo_terminals import TmuxScreen, needs_tmux
from tests.support.shell import ROOT, Shell
from tests.support.web_story import WebStory

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> WebStory:
    return WebStory(tmp_path_factory.mktemp("story") / "project")


def completed_by_bash(script: str, *words: str) -> set[str]:
    """Return what a real bash offers for the last of *words*."""
    typed = " ".join(map(shlex.quote, words))
    state = f"COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}"
    asked = f'{script}\n{state}; _liza; echo "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def shown_in_columns(directory: Path, columns: int, *words: str) -> list[str]:
    """Return what `liza` prints on a terminal that is so wide."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    with subprocess.Popen(
        [sys.executable, "-m", "liza", "-C", str(directory), *words],
        stdout=theirs, stdin=subprocess.DEVNULL, env=environment, cwd=ROOT,
    ):  # fmt: skip
        os.close(theirs)
        data = b""
        with suppress(OSError):  # so a terminal says that nobody writes to it any more
            while piece := os.read(ours, 1 << 16):
                data += piece
    os.close(ours)
    return data.decode().splitlines()


class TestWidth:
    """Sentences fit the terminal, the cause before the command; where there is none they are whole."""

    def test_a_status_is_cut_and_its_commands_are_not(self, tmp_path: Path) -> None:
        story = WebStory(tmp_path / "project")
        why = "the goal is not clear " * 9 + "at all"
        story.do("usage", Block(reason=why, questions=("Which?",)), HUMAN)
        shell = Shell(story.user.directory)
        shell.ok("pause", "because " * 20)
        narrow = shown_in_columns(story.user.directory, 60, "status")

        assert max(map(len, narrow)) <= 60
        assert narrow[0].startswith("Nothing new starts: PAUSE is thrown (because because ")
        assert narrow[1] == "Next: liza resume"
        assert any(line.startswith("Switch    PAUSE: because") and line.endswith("… (`liza resume` goes on)")
                   for line in narrow)  # fmt: skip
        assert [line for line in narrow if "goal is not clear the goal" in line and line.endswith("…")]
        assert why in shell.ok("status")

    def test_an_explanation_is_folded(self, story: WebStory) -> None:
        whole = Shell(story.user.directory).ok("explain").split()
        narrow = shown_in_columns(story.user.directory, 50, "explain")

        assert [line for line in narrow if len(line) > 50 and not line.startswith("  then ")] == []
        assert " ".join(narrow).split() == whole


class TestCompletion:
    @pytest.mark.parametrize(
        ("words", "offered"),
        [
            (("liza", "sta"), {"status"}),
            (("liza", "task", "re"), {"ready", "reject", "release", "retry"}),
            (("liza", "task", "reject", "--r"), {"--reason"}),
            (("liza", "report", "--"), {"--html", "--markdown", "--since", "--help"}),
            (("liza", "completion", "z"), {"zsh"}),
            (("liza", "board", "d"), {"diff"}),
            (("liza", "wor"), set()),
        ],
    )
    def test_bash_offers_commands_words_and_options(self, words: tuple[str, ...], offered: set[str]) -> None:
        assert completed_by_bash(SHELLS["bash"](), *words) == offered

    @pytest.mark.parametrize("shell", [name for name in SHELLS if name != "bash"])
    def test_other_shells_read_theirs(self, shell: str, tmp_path: Path) -> None:
        if shutil.which(shell) is None:
            pytest.skip(f"there is no {shell} here")
        script = tmp_path / "liza"
        script.write_text(SHELLS[shell]())
        subprocess.run([shell, "-n", str(script)], check=True, capture_output=True)

    @needs_tmux
    @pytest.mark.skipif(shutil.which("zsh") is None, reason="there is no zsh here")
    def test_zsh_offers_the_same_to_who_types(self, tmp_path: Path) -> None:
        script = tmp_path / "liza.zsh"
        script.write_text(SHELLS["zsh"]())
        with TmuxScreen(tmp_path, (80, 24)) as screen:
            screen.run(tmp_path, "zsh", "-f", "-i")
            screen.write(f"autoload -U compinit; compinit -D -u; source {script}; PROMPT='ready '")
            for typed, completed in {
                "liza sta": "liza status",
                "liza task rej": "liza task reject",
                "liza task reject --r": "liza task reject --reason",
                "liza completion z": "liza completion zsh",
            }.items():
                screen.sees("ready ")
                screen.press("C-u")
                screen.press("-l", typed)
                screen.sees(f"ready {typed}")
                screen.press("Tab")
                screen.sees(f"ready {completed}")

    @pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish here")
    def test_fish_offers_the_same(self) -> None:
        asked = f"{SHELLS['fish']()}\ncomplete -C 'liza task rej'"
        done = subprocess.run(["fish", "-c", asked], capture_output=True, text=True, check=True)
        assert done.stdout.startswith("reject\t")

    def test_every_command_is_there_in_every_shell(self) -> None:
        liza = Shell(ROOT)
        for shell in SHELLS:
            script = liza.ok("completion", shell)
            assert [word for word in first_words() if word not in script] == []
        assert liza("completion", "tcsh").code == 2


class TestHelp:
    def test_commands_are_in_groups_with_an_example_each(self) -> None:
        text = parser().format_help()
        assert [word for word in first_words() if not re.search(rf"^  {word} ", text, re.MULTILINE)] == []
        assert text.count("  for example  liza ") == len(SECTIONS)
        assert "\n  worker " not in text

    @pytest.mark.parametrize("name", [name for name in COMMANDS if name not in HIDDEN])
    def test_the_example_of_a_command_is_one_of_it(self, name: str) -> None:
        words = shlex.split(EXAMPLES[name].partition(" >")[0])
        assert words[0] == "liza"
        assert parser().parse_args(words[1:]).run is COMMANDS[name].run

    def test_no_example_is_of_nothing(self) -> None:
        assert EXAMPLES.keys() - COMMANDS.keys() == set()


class TestOpen:
    def test_a_shell_starts_in_the_worktree(self, story: WebStory) -> None:
        worktree, hand = story.user.task("hostile")
        program = hand.write("shell.sh", "#!/bin/sh\npwd\nexit 3\n")
        program.chmod(0o755)
        done = Shell(story.user.directory)("open", "hostile", SHELL=str(program))
        assert done.code == 3
        assert done.out.splitlines()[-1] == str(worktree.path)
        assert "coder-2 works there now" in done.out

    def test_an_editor_is_given_the_directory(self, story: WebStory) -> None:
        worktree, _ = story.user.task("hostile")
        out = Shell(story.user.directory).ok("open", "hostile", "--editor", EDITOR="ls -d", VISUAL="")
        assert out.splitlines()[-2].startswith(f"{worktree.path}; what you commit there")
        assert out.splitlines()[-1] == "."
        assert "Ctrl-D" not in out

    @pytest.mark.parametrize(
        ("words", "environment", "sentence"),
        [
            (("nobody",), {}, "there is no task 'nobody'"),
            (("../.git",), {}, "there is no task '../.git'"),
            (("usage",), {}, "there is no worktree of 'usage'; nobody works on it now"),
            (("hostile",), {"SHELL": "/no/shell"}, "cannot run '/no/shell'"),
            (("hostile", "--editor"), {"EDITOR": "", "VISUAL": ""}, "no editor is set"),
        ],
    )
    def test_what_cannot_be_opened_is_one_sentence(
        self, story: WebStory, words: tuple[str, ...], environment: dict[str, str], sentence: str
    ) -> None:
        story.user.task("hostile")
        done = Shell(story.user.directory)("open", *words, user=None, **environment)
        assert done.code in {1, 2}
        assert len(done.err.splitlines()) == 1
        assert sentence in done.err


def test_explain_names_what_people_must_answer_also_when_no_run_goes_on(story: WebStory) -> None:
    text = Shell(story.user.directory).ok("explain")
    assert "no supervisor runs" in text
    assert '  asks   colours: Which colour, blue or green? (`liza answer colours "…"`)' in text
    assert "  asks   parse: It changes how people start it. Ship it? (`liza task accept parse`)" in text
