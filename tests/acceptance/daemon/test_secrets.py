"""A secret that agents say, print, commit and put into names is in nothing that Liza writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from liza.board.alerts import append_alert
from liza.board.protocol import open_board
from liza.daemon.turn import StopRequests
from liza.system.files import Mask, secrets_of
from tests.support import scripted_agent
from tests.support.repos import NOW, Home
from tests.support.shell import ROOT

PATIENCE: Final = 250.0
VALUE: Final = 'pa"ss wörd/hunter2+hunter2'  # in JSON and in an address it is written in other ways
PASSWORD: Final = "correct-horse-battery"  # noqa: S105 - planted, to be looked for
TOKEN: Final = "sk-" + "abcdefghij" * 3
SAID: Final = f"{VALUE} and {PASSWORD} and {TOKEN}"
PIECES: Final = f"printf %s {PASSWORD[:9]}; sleep 0.3; printf '%s\\n' {PASSWORD[9:]}"


def script() -> dict[str, Any]:
    """Return what the agents do: each says the secrets wherever it can say something."""
    reject = {"verdict": "reject", "reason": f"it has {SAID}", "feedback": [{"file": "a", "message": SAID}]}
    tasks = [{"id": name, "description": f"do {SAID}", "done_when": [SAID]} for name in ("t1", "t2")]
    return {
        "plan": {"print": f"{SAID}\n", "answer": {"tasks": tasks}},
        "replan": {"answer": {"questions": [f"What of {SAID}?"]}},
        "checkpoint": {"answer": {"intent": SAID, "assumptions": [SAID], "risks": [SAID]}},
        "implement": {
            "run": PIECES,
            "write": {"leak.txt": f"{SAID}\n", f"{TOKEN}.txt": "x\n"},
            "commit": f"Add {SAID}",
            "answer": {
                "status": "done",
                "summary": SAID,
                "discovered": [{"description": SAID}],
                "anomalies": [{"type": "trade_off", "what": SAID, "why": SAID}],
            },
        },
        "implement t1 2": {"print": SAID, "run": f"echo {PASSWORD} >&2; exit 3"},
        "review t1 1": {"answer": reject},
    }


def written(home: Path) -> dict[str, list[str]]:
    """Return the files below *home* that hold a secret, each with which."""
    found: dict[str, list[str]] = {}
    for path in (path for path in home.rglob("*") if path.is_file() and "sandboxes" not in path.parts):
        text = path.read_text(errors="replace") + str(path)
        here = [secret for secret in (VALUE, json.dumps(VALUE)[1:-1], PASSWORD, TOKEN) if secret in text]
        if here:
            found[str(path.relative_to(home))] = here
    return found


def test_nothing_that_is_written_holds_a_secret(tmp_path: Path) -> None:
    """Board, journal, transcripts, prompts, patches, logs and alerts, with a crash and a red gate."""
    scripted_agent.save(script(), tmp_path / "script")
    home = Home(tmp_path / "project")
    command = [sys.executable, "-S", scripted_agent.__file__, str(tmp_path / "script")]
    settings = {
        "agents": {"default": {"command": command}},
        "workers": {"coder": 1},
        "gates": {"test": "test ! -f leak.txt || { cat leak.txt; exit 1; }"},
    }
    home.write("liza.yaml", json.dumps(settings))
    home.commit()
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "SERVICE_TOKEN": VALUE,
        "DATABASE_URL": f"postgres://me:{PASSWORD}@localhost/x",
    }

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "liza", *words],
            cwd=home.directory,
            env=environment,
            timeout=PATIENCE,
            capture_output=True,
            text=True,
            check=False,
        )

    run("init", "make files")
    done = run("run", "--until-idle", "--no-baseline")  # its gate looks at no code

    liza = home.directory / ".liza"
    journal = (liza / "journal.jsonl").read_text()
    assert done.returncode == 3, done
    assert all(word in journal for word in ("cat leak.txt; exit 1", "revise", "[masked]", "exit code 1"))
    assert written(liza) == {}
    assert not any(secret in done.stdout + done.stderr for secret in (VALUE, PASSWORD, TOKEN))


def test_alerts_and_switches_are_masked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sentence may name a file, whose name an agent chose."""
    monkeypatch.setenv("SERVICE_TOKEN", VALUE)

    append_alert(tmp_path, NOW, f"look at {SAID}")
    StopRequests(open_board(tmp_path)).pause(f"look at {VALUE} and {TOKEN}")

    assert "[masked]" in (tmp_path / "alerts.log").read_text()
    assert VALUE not in (tmp_path / "alerts.log").read_text()
    assert (tmp_path / "PAUSE").read_text() == "by Liza: look at [masked] and [masked]\n"


@pytest.mark.parametrize("size", [1, 2, 7, 64])
def test_a_secret_in_pieces_is_masked(size: int) -> None:
    """However a stream is cut, whole is whole."""
    data = f"before {SAID} after\n".encode() * 3
    mask = Mask([VALUE, PASSWORD])

    out = b"".join(mask.feed(data[at : at + size]) for at in range(0, len(data), size)) + mask.rest()

    assert out == b"before [masked] and [masked] and [masked] after\n" * 3


def test_what_is_secret_is_told_by_its_name_or_its_place() -> None:
    """An author is no authority, a path to a key is no key, and an address may hold a password."""
    environment = {
        "GIT_AUTHOR_NAME": "Ada Lovelace",
        "SSH_KEY_FILE": str(Path(__file__)),
        "X_API_KEY": "12345678",
        "DATABASE_URL": "postgres://me:word1234@host/x",
        "HOME": "/nowhere/at/all",
    }

    assert secrets_of(environment) == ["12345678", "word1234"]
