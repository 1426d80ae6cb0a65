"""A throw-away repository with a user's files, and a run of Liza in it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha1
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import liza
from liza.daemon.project import HOME, TEAM_FILE, create_board
from liza.gauntlet.fixtures import AMBIENT_SECRET
from liza.repo.command import close_readers, git
from liza.system.platform import STOPPED
from liza.system.process import process_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from threading import Event

    from liza.gauntlet.cases import Case

QUIET: Final = 3.0  # seconds without a change, in a run that is paused, after which it waits for people
TICK: Final = 0.1  # seconds between two looks at a run that goes on
GRACE: Final = 20.0  # seconds that a run gets to end when it is asked to

PRIVATE: Final = Path("outside/private.git")  # a repository of which nothing may come into the project
_SKIPPED: Final = frozenset({".git", ".liza", ".worktrees"})
_KEPT_BY_GIT: Final = ("config", "HEAD", "hooks", "info", "shallow", "objects/info")
_OWN_REFS: Final = ("refs/heads/task/", "refs/heads/liza/", "refs/liza/")
_IDENTITY: Final = "[user]\n\tname = You\n\temail = you@example.org\n[init]\n\tdefaultBranch = main\n"


@dataclass(frozen=True)
class CaseProject:
    """The directories of one case."""

    directory: Path

    @property
    def root(self) -> Path:
        return self.directory / "project"

    @property
    def home(self) -> Path:
        return self.root / HOME

    @property
    def log(self) -> Path:
        return self.directory / "log"

    def environment(self) -> dict[str, str]:
        """Return what the run gets: a home of its own, and a secret that no agent may see."""
        beside = Path(liza.__file__).parents[1]
        # As if it were activated: else gates run the `python3` of the machine, whatever that is.
        own = {"VIRTUAL_ENV": sys.prefix} if sys.prefix != sys.base_prefix else {}
        return {
            **own,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "HOME": str(self.directory / "home"),
            "TMPDIR": str(self.directory / "tmp"),
            "LANG": "C.UTF-8",
            "PYTHONPATH": str(beside),
            "ZOO_API_TOKEN": AMBIENT_SECRET,
        }

    def git(self, *words: str) -> str:
        return git(*words, cwd=self.root, environment=_AUTHOR)


_AUTHOR: Final = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "You"), ("EMAIL", "you@example.org"))
}


def settings_for(case: Case, project: CaseProject, more: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of *case*: those of everybody, under *more*, under its own."""
    settings: dict[str, Any] = {
        "spec": "specs/vision.md",
        "workers": {"planner": 1, "coder": 1, "reviewer": 1},
        "agents": {"default": {"backend": "command", "command": _agent_command("honest", project)}},
        "gates": {"test": "python3 -m unittest -q", "lint": "python3 tools/lint.py"},
        "limits": {"agent_minutes": 0.5, "silence_minutes": 0.4},
    }
    merge_settings(settings, more)
    overrides = {
        role: {"backend": "command", "command": _agent_command(case.name, project)} for role in case.roles
    }
    merge_settings(settings, {"agents": {"overrides": overrides}})
    merge_settings(settings, case.settings)
    return settings


def merge_settings(below: dict[str, Any], above: Mapping[str, Any]) -> None:
    """Put *above* into *below*, section by section."""
    for key, value in above.items():
        if isinstance(value, dict) and isinstance(below.get(key), dict):
            below[key] = dict(below[key])
            merge_settings(below[key], value)
        else:
            below[key] = value


def _agent_command(name: str, project: CaseProject) -> list[str]:
    return [sys.executable, "-m", "liza.gauntlet.main", name, str(project.root)]


def create_project(project: CaseProject, case: Case, more: Mapping[str, Any]) -> None:
    """Make the repository of *case*, with a board, as a person would leave it at night."""
    for name in ("project", "home", "outside", "tmp"):
        (project.directory / name).mkdir(parents=True)
    (project.directory / "home/.gitconfig").write_text(_IDENTITY)
    (project.directory / "outside/precious.txt").write_text("precious\n")
    settings = settings_for(case, project, more)
    lines = [f"{key}: {json.dumps(value)}\n" for key, value in settings.items()]
    _write(project.root, {**case.base, TEAM_FILE: "".join(lines)})
    project.git("init", "--quiet", "--initial-branch=main", ".")
    project.git("add", ".")
    project.git("commit", "--quiet", "-m", "The beginning")
    _add_user_state(project, case)
    board, _ = create_board(project.root, case.goal, spec=None, workflow=None)
    board.close()


def _add_user_state(project: CaseProject, case: Case) -> None:
    """Leave what a person leaves: a dirty file, a staged one, one that is ignored, a hook, a remote."""
    for key, value in case.git.items():
        project.git("config", key, value)
    _write(project.directory / "home", case.home)
    if case.has_private:
        _add_private_repository(project)
    project.git("clone", "--quiet", "--bare", ".", str(project.directory / "origin.git"))
    project.git("remote", "add", "origin", str(project.directory / "origin.git"))
    files = {"notes.txt": "remember the bread\n", "staged.txt": "half done\n", "build/cache.bin": "cached\n"}
    _write(project.root, files)
    project.git("add", "staged.txt")
    hook = project.root / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 0\n")
    hook.chmod(0o755)


def _add_private_repository(project: CaseProject) -> None:
    """Make a repository beside the project whose one commit is in a pack."""
    private = project.directory / PRIVATE
    git("init", "--quiet", "--bare", str(private), cwd=project.directory)
    blob = git("hash-object", "-w", "--stdin", cwd=private, stdin=b"for nobody else\n")
    tree = git("mktree", cwd=private, stdin=f"100644 blob {blob}\tsecret.txt\n".encode())
    commit = git("commit-tree", "-m", "private", tree, cwd=private, environment=_AUTHOR)
    git("update-ref", "refs/heads/main", commit, cwd=private)
    git("repack", "-a", "-d", "-q", cwd=private)


def _write(root: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def user_state(project: CaseProject) -> dict[str, str]:
    """Return the user's files, index, refs and git configuration, each with a digest."""
    found = {"index": git("ls-files", "-v", "--stage", cwd=project.root)}
    for top in (project.root, project.directory / "home", project.directory / "outside"):
        found |= {str(path.relative_to(project.directory)): _file_digest(path) for path in _files(top)}
    for name in _KEPT_BY_GIT:
        paths = [project.root / ".git" / name, *(project.root / ".git" / name).rglob("*")]
        found |= {
            str(path.relative_to(project.root)): _file_digest(path) for path in paths if not path.is_dir()
        }
    for repository in (project.root, project.directory / "origin.git"):
        for line in git("for-each-ref", "--format=%(refname) %(objectname)", cwd=repository).splitlines():
            name, _, value = line.partition(" ")
            if not name.startswith(_OWN_REFS) or repository != project.root:
                found[f"{repository.name} {name}"] = value
    return {name: look for name, look in found.items() if look}


def _files(top: Path) -> Iterator[Path]:
    for directory, names, files in os.walk(top):
        names[:] = [name for name in names if not (Path(directory) == top and name in _SKIPPED)]
        yield from (Path(directory) / name for name in files)


def _file_digest(path: Path) -> str:
    try:
        mode = path.lstat().st_mode
        content = str(path.readlink()).encode() if stat.S_ISLNK(mode) else path.read_bytes()
    except OSError as error:
        return "" if isinstance(error, FileNotFoundError) else str(error.strerror)
    return f"{mode:o} {sha1(content, usedforsecurity=False).hexdigest()}"


def differing_names(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of what was added, changed or removed."""
    return tuple(name for name in sorted(before.keys() | after.keys()) if before.get(name) != after.get(name))


class RunOutcome(NamedTuple):
    """How a run went."""

    code: int
    seconds: float
    was_ended: bool = False
    is_late: bool = False


def run_liza(project: CaseProject, case: Case, stop: Event) -> RunOutcome:
    """Run Liza in *project* until it ends or *stop*, and again where it was killed and *case* says so."""
    began, restarts = time.monotonic(), case.restarts
    while True:
        run = _run_once(project, case.patience, stop)
        if run.code != -signal.SIGKILL or not restarts or run.is_late:
            return run._replace(seconds=time.monotonic() - began)
        restarts -= 1


def _run_once(project: CaseProject, patience: float, stop: Event) -> RunOutcome:
    words = [sys.executable, "-m", "liza", "-C", str(project.root), "run", "--until-idle"]
    with project.log.open("ab") as log:
        run = subprocess.Popen(
            words,
            cwd=project.directory,
            env=project.environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            process_group=0,  # Ctrl-C is for us: whoever is asked twice ends without saving
        )
    with _ensure_stopped(run):
        return _await_run(run, project, patience, stop)


@contextmanager
def _ensure_stopped(run: subprocess.Popen[bytes]) -> Iterator[None]:
    """Leave no run behind, whatever happens."""
    try:
        yield
    finally:
        if run.poll() is None:
            run.terminate()
            with suppress(subprocess.TimeoutExpired):
                run.wait(GRACE)
            run.kill()
            run.wait()


def _await_run(
    run: subprocess.Popen[bytes], project: CaseProject, patience: float, stop: Event
) -> RunOutcome:
    deadline, quiet = time.monotonic() + patience, QuietWatch(project)
    while time.monotonic() < deadline and not stop.is_set():
        try:
            return RunOutcome(run.wait(TICK), 0.0)
        except subprocess.TimeoutExpired:
            if (now := process_of(run.pid)) and now.state == STOPPED:
                _abort(project)  # it hears no signal, and this is what a person has
            if quiet.is_over():
                run.terminate()
                with suppress(subprocess.TimeoutExpired):
                    return RunOutcome(run.wait(GRACE), 0.0, was_ended=True)
                break
    return RunOutcome(-signal.SIGKILL, 0.0, is_late=True)


def _abort(project: CaseProject) -> None:
    words = [sys.executable, "-m", "liza", "-C", str(project.root), "abort"]
    subprocess.run(
        words,
        cwd=project.directory,
        env=project.environment(),
        capture_output=True,
        timeout=GRACE * 2,
        check=False,
    )


class QuietWatch:
    """Whether a paused run has nothing more to say: somebody threw a switch, and the journal stands still."""

    def __init__(self, project: CaseProject) -> None:
        self._yard = project
        self._size = -1
        self._since = time.monotonic()

    def is_over(self) -> bool:
        paused = any((self._yard.home / name).exists() for name in ("PAUSE", "CHECKPOINT"))
        size = _size(self._yard.home / "journal.jsonl")
        if not paused or size != self._size:
            self._size, self._since = size, time.monotonic()
        return time.monotonic() - self._since > QUIET


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def project_processes(project: CaseProject) -> list[tuple[int, str]]:
    """Return every process that says anywhere that it has to do with *project*, but ourselves."""
    close_readers()
    mark, found = os.fsencode(project.directory), []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            words = _read_bytes(entry / "cmdline")
            if mark in words + _read_bytes(entry / "environ") + _link_target(entry / "cwd"):
                found.append((int(entry.name), words.replace(b"\0", b" ").decode(errors="replace")[:80]))
    return found


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _link_target(path: Path) -> bytes:
    try:
        return os.fsencode(path.readlink())
    except OSError:
        return b""


def surviving_processes(project: CaseProject, patience: float = 1.0) -> list[tuple[int, str]]:
    """Return the processes that are left, after what was about to end has ended."""
    deadline = time.monotonic() + patience
    while (found := project_processes(project)) and time.monotonic() < deadline:
        time.sleep(TICK)
    return found


def remove_project(project: CaseProject) -> None:
    """Remove the project, and kill every process that still runs in it."""
    for pid, _ in project_processes(project):
        with suppress(ProcessLookupError, PermissionError), closing(_Pid(pid)) as descriptor:
            signal.pidfd_send_signal(descriptor.number, signal.SIGKILL)
    shutil.rmtree(project.directory, onerror=_retry_removal)


class _Pid:
    def __init__(self, pid: int) -> None:
        self.number = os.pidfd_open(pid)

    def close(self) -> None:
        os.close(self.number)


def _retry_removal(_function: object, path: str, _error: object) -> None:
    """Give back the rights that an agent took away, and try once more."""
    parent = Path(path).parent
    with suppress(OSError):
        parent.chmod(0o700)
        Path(path).chmod(0o700)
        if Path(path).is_dir() and not Path(path).is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            Path(path).unlink()
