"""The main job in under a minute, on one machine or several: all is real but the agents.

A demo is a directory of `liza/cli/demos/`, named after the workflow that it shows.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack, contextmanager
from importlib.resources import as_file, files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from liza.board.location import ADDRESS, VARIABLE
from liza.board.protocol import copy_board, open_board
from liza.cli.views.questions import YOU, QuestionKind, open_questions
from liza.cli.views.status import status_text
from liza.domain.config import Switch
from liza.domain.model import Status
from liza.domain.record import NonEmptyStr, Record
from liza.domain.yaml_parse import parse_yaml
from liza.errors import DiskTrouble, LizaError, UsageError
from liza.repo.command import git

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from liza.board.protocol import Board
    from liza.domain.model import State


PAUSE_SECONDS: Final = 2.0  # seconds that the demo stands still, so that it can be seen
TIMEOUT: Final = 120.0  # seconds after which the demo is taken for broken
LOOK_INTERVAL: Final = 0.5  # seconds between two looks where nothing changes
OWN_SETTINGS: Final = """\
agents: {default: {backend: command, command: [python3, your_agent.py]}}
gates: {test: your test command}
"""
_AUTHOR: Final = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "You"), ("EMAIL", "you@example.org"))
}


class Demo(Record):
    """A `demo.yaml`."""

    goal: NonEmptyStr
    look: NonEmptyStr
    start: NonEmptyStr  # how a goal of one's own begins
    settings: str = ""  # what that needs in liza.yaml beside an agent and a test command
    init: tuple[NonEmptyStr, ...] = ()  # more words of `liza init`
    pause: bool = False
    answers: Mapping[QuestionKind, tuple[NonEmptyStr, ...]] = {}


def demo_of(workflow: str) -> Demo:
    """Return the demo of *workflow*; raise a sentence with the known ones where there is none."""
    demos = files("liza.cli.demos")
    known = sorted(one.name for one in demos.iterdir() if one.joinpath("demo.yaml").is_file())
    if workflow not in known:
        raise UsageError(f"there is no demo of {workflow!r}; use one of {', '.join(known)}")
    return Demo.model_validate(parse_yaml(demos.joinpath(workflow, "demo.yaml").read_text("utf-8")).data)


def prepare_repository(directory: Path, workflow: str, *, pace: str = "1", settings: str = "") -> Board:
    """Make somebody's repository in *directory*, with a goal and agents from a recording.

    *settings* are further lines of its `liza.yaml`.
    """
    demo = demo_of(workflow)
    if directory.exists() and not directory.is_dir():
        raise UsageError(f"{directory} is no directory; name an empty one, or one that does not exist")
    if directory.is_dir() and any(directory.iterdir()):
        raise UsageError(f"{directory} is not empty; name a directory that is, or does not exist")
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DiskTrouble(f"make the demo in {directory}", error) from error
    with as_file(files("liza.cli.demos").joinpath(workflow, "files")) as source:
        shutil.copytree(source, directory, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    team = directory / "liza.yaml"
    team.write_text(team.read_text("utf-8").replace("PACE", pace) + settings, "utf-8")
    git("init", "--quiet", "--initial-branch=main", ".", cwd=directory)
    git("add", ".", cwd=directory)
    git("commit", "--quiet", "-m", "What we want", cwd=directory, environment=_AUTHOR)
    words = ["init", demo.goal, "--workflow", workflow, "--no-baseline", *demo.init]
    done = subprocess.run(_liza(directory, *words), capture_output=True, text=True, check=False)
    if done.returncode:
        raise UsageError(done.stderr.strip().removeprefix("liza: ") or "liza init failed")
    return open_board(directory / ".liza")


def _liza(directory: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "liza", "-C", str(directory), *words]


def run_demo(board: Board, workflow: str, say: Callable[[str], None]) -> int:
    """Let `liza run` work on the goal, and do what a person would do meanwhile; return its exit code."""
    demo = demo_of(workflow)
    # Where people are asked, the run waits for them.
    words = ["run"] if demo.answers else ["run", "--until-idle"]
    run = subprocess.Popen(_liza(board.home.parent, *words))
    people = threading.Thread(target=_be_people, args=(board, demo, run, say), daemon=True)
    people.start()
    try:
        return run.wait(TIMEOUT)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        run.send_signal(signal.SIGTERM)
        return run.wait()


def _be_people(board: Board, demo: Demo, run: subprocess.Popen[bytes], say: Callable[[str], None]) -> None:
    """Pause once where the demo wants it, and answer what is asked."""
    paused, state = not demo.pause, board.read()
    while run.poll() is None:
        if not paused and _is_a_good_moment(state):
            paused = True
            _pause(board, say)
        for question in open_questions(state):
            words = demo.answers.get(question.kind)
            if words and question.who == YOU:
                typed = [word.replace("{subject}", question.subject) for word in words]
                say(f"A person types: liza {' '.join(typed)}")
                done = _liza(board.home.parent, *typed)
                subprocess.run(done, stdout=subprocess.DEVNULL, check=False)
        state = board.wait(state.revision, LOOK_INTERVAL)


def _pause(board: Board, say: Callable[[str], None]) -> None:
    if not board.switches.throw(Switch.PAUSE, "so that you can see one"):
        return  # somebody else's
    say(
        f"PAUSE is thrown for {PAUSE_SECONDS:.0f} seconds: "
        "agents are frozen where they are, nothing new starts."
    )
    time.sleep(PAUSE_SECONDS)
    board.switches.clear(Switch.PAUSE)
    say("PAUSE is taken back: they go on where they were.")


def _is_a_good_moment(state: State) -> bool:
    statuses = [task.status for task in state.tasks.values()]
    return Status.MERGED in statuses and statuses.count(Status.WORKING) > 1


def demo_summary(board: Board, workflow: str) -> str:
    """Return what came of it: the merged history, and where to look."""
    root, branch = board.home.parent, board.read().config.integration_branch
    demo = demo_of(workflow)
    look = "\n".join(f"  {line}" for line in demo.look.splitlines())
    settings = "\n".join(f"  {line}" for line in (demo.settings + OWN_SETTINGS).splitlines())
    return f"""
{status_text(board.read(), {})}
{_merge_graph(board, branch)}
Look around in {root}:
{look}

The same with your own agent: in your repository, put into liza.yaml
{settings}
then `{demo.start}` and `liza run`. The agent gets a prompt on stdin and answers on stdout.
"""


def _merge_graph(board: Board, branch: str) -> str:
    merged = {task.status for task in board.read().tasks.values()} | set(board.read().archived.values())
    if Status.MERGED not in merged:
        return "Nothing was merged, as this workflow wants it; your own branch is as it was.\n"
    history = git("log", "--graph", "--format=%h %s", branch, cwd=board.home.parent)
    return f"""What was merged into {branch}:

{history}

Your own branch is as it was; `git merge {branch}` takes the work over, when you want it.
"""


# Several machines in small: hosts with a clone each, one PostgreSQL, one bare repository, one host killed.
#
# Everything is in one directory and on this machine: the server is started in a private directory, listens
# on no port, and ends with the demo.

WORKFLOW: Final = "liza"
MOST_HOSTS: Final = 8  # of one demo: all of them are on this machine
HOSTS_TIMEOUT: Final = 300.0  # seconds after which the demo is taken for broken; it takes one minute
START_TIMEOUT: Final = 30.0  # seconds for a server to answer, on a busy machine
SETTINGS: Final = "remote: ../team.git\nlimits: {lease_seconds: 10}\n"


def find_server(distribution: Path = Path("/usr/lib/postgresql")) -> Path:
    """Return the directory of the server's programs, or raise what is missing.

    *distribution* is where packages put them, by version.
    """
    installed = sorted(distribution.glob("*/bin"), key=lambda path: -float(path.parent.name))
    named = [Path(os.environ["PG_BIN"])] if os.environ.get("PG_BIN") else []
    on_path = [Path(found).resolve().parent] if (found := shutil.which("initdb")) else []
    there = next((path for path in (*named, *installed, *on_path) if (path / "initdb").exists()), None)
    if there is None:
        raise LizaError(
            "there is no PostgreSQL here for several hosts to share a board; install one (on Debian and "
            "Ubuntu: apt install postgresql), or name the directory of its programs by PG_BIN"
        )
    if find_spec("psycopg") is None:
        raise LizaError("a board on PostgreSQL needs psycopg; install it (`pip install 'liza[postgres]'`)")
    return there


class PrivateServer:
    """A server for one demo: its own data, reached by a socket in its own directory alone."""

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        self.directory = Path(tempfile.mkdtemp(prefix="liza-pg-"))  # short: a socket's path has 107 bytes
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:  # it refuses to be root
            user = next(one for one in pwd.getpwall() if one.pw_name in {"postgres", "nobody"})
            self._as = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
            os.chown(self.directory, user.pw_uid, user.pw_gid)
        words = ("-D", str(self.directory / "data"), "-U", "demo", "-E", "UTF8", "--no-locale", "--no-sync")
        self._run("initdb", "--auth=trust", *words)
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"postgresql://demo@/postgres?host={self.directory}#demo"

    def _run(self, program: str, *words: str) -> None:
        command = [str(self._programs / program), *words]
        done = subprocess.run(command, capture_output=True, text=True, cwd="/", check=False, **self._as)
        if done.returncode:
            raise LizaError(f"{program} failed: {' '.join(done.stderr.split())}")

    def start(self) -> None:
        """Start it, again where what is left of a killed one has to end first; return when it answers."""
        options = ("-c", "listen_addresses=", "-c", f"unix_socket_directories={self.directory}")
        command = [str(self._programs / "postgres"), "-D", str(self.directory / "data"), *options]
        ready = [str(self._programs / "pg_isready"), "-q", "-h", str(self.directory)]
        deadline = time.monotonic() + START_TIMEOUT
        while time.monotonic() < deadline:
            if self.process is None or self.process.poll() is not None:
                with (self.directory / "log").open("ab") as log:
                    self.process = subprocess.Popen(
                        command, stdout=log, stderr=log, cwd="/", start_new_session=True, **self._as
                    )
            if subprocess.run(ready, check=False, cwd="/").returncode == 0:
                return
            time.sleep(0.1)
        raise LizaError(f"PostgreSQL does not start; its words are in {self.directory / 'log'}")

    def kill(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()

    def remove(self) -> None:
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)  # ends sessions, and then itself
            self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


def check_hosts_demo(count: int, workflow: str | None) -> None:
    """Raise what keeps the demo from being shown, before anything is made."""
    if not 1 < count <= MOST_HOSTS:
        raise UsageError(f"--hosts {count}: give between 2 and {MOST_HOSTS}")
    if workflow not in {None, WORKFLOW}:
        raise UsageError("--hosts shows the default workflow; leave --workflow out")
    find_server()


def run_hosts_demo(where: Path, count: int, say: Callable[[str], None]) -> int:
    """Let *count* hosts work on one goal in *where*, with faults; return 0 where all was merged and holds."""
    with ExitStack() as stack:
        server = PrivateServer(find_server())
        stack.callback(server.remove)
        server.start()
        os.environ[VARIABLE] = server.address
        stack.callback(os.environ.pop, VARIABLE)
        names = [chr(ord("a") + number) for number in range(count)]
        board = _prepare(where, names)
        stack.callback(board.close)
        say(f"{count} clones, a bare repository and a PostgreSQL for the board are in {where}.")
        hosts = {name: stack.enter_context(_host(where, name)) for name in names}
        _work(board, hosts, server, say)
        code = _conclude(board, where, say)
        _keep_board(server.address, where / names[0])
    return code


def _prepare(where: Path, names: Sequence[str]) -> Board:
    first = where / names[0]
    board = prepare_repository(first, WORKFLOW, settings=SETTINGS)
    git("init", "--quiet", "--bare", "--initial-branch=main", str(where / "team.git"), cwd=where)
    git("push", "--quiet", str(where / "team.git"), "main", cwd=first)
    for name in names[1:]:
        git("clone", "--quiet", str(where / "team.git"), str(where / name), cwd=where)
    return board


@contextmanager
def _host(where: Path, name: str) -> Iterator[subprocess.Popen[bytes]]:
    words = ["-C", str(where / name), "host", "--name", name, "--no-baseline"]
    slots = ["--slots", "planner=1,coder=1,reviewer=1"]
    with (where / f"{name}.log").open("ab") as log:
        process = subprocess.Popen([sys.executable, "-m", "liza", *words, *slots], stdout=log, stderr=log)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait()


def _work(
    board: Board, hosts: dict[str, subprocess.Popen[bytes]], server: PrivateServer, say: Callable[[str], None]
) -> None:
    """Tell what is merged where, and kill a host and the server on the way."""
    seen: set[str] = set()
    last, deadline = list(hosts)[-1], time.monotonic() + HOSTS_TIMEOUT
    faults = [lambda: _kill_host(hosts[last], last, say), lambda: _kill_server(server, say)]
    state = board.read()
    while not state.goal.is_over and time.monotonic() < deadline:
        merged = [task for task in state.tasks.values() if task.status is Status.MERGED]
        for task in [task for task in merged if task.id not in seen]:
            seen.add(task.id)
            say(f"{task.id}: made by {task.authors[-1]}, merged by {task.history[-1].by}.")
            if faults:
                faults.pop(0)()
        state = board.wait(state.revision, LOOK_INTERVAL)
    for name, process in hosts.items():
        if name != last and state.goal.is_over:
            process.wait(max(1.0, deadline - time.monotonic()))


def _kill_host(process: subprocess.Popen[bytes], name: str, say: Callable[[str], None]) -> None:
    process.kill()
    process.wait()
    say(f"The host {name} is killed: what it held is given to others.")


def _kill_server(server: PrivateServer, say: Callable[[str], None]) -> None:
    server.kill()
    say("PostgreSQL is killed and started again: everybody waits and goes on.")
    server.start()


def _conclude(board: Board, where: Path, say: Callable[[str], None]) -> int:
    state, first = board.read(), next(path for path in sorted(where.iterdir()) if path.is_dir())
    makers = Counter(task.authors[-1].split("-")[1] for task in state.tasks.values() if task.authors)
    verified = subprocess.run(
        [sys.executable, "-m", "liza", "-C", str(first), "verify"],
        capture_output=True,
        text=True,
        check=False,
    )
    branch = state.config.integration_branch
    say(f"\n{status_text(state, {})}")
    say(f"What each host made: {', '.join(f'{name} {number}' for name, number in sorted(makers.items()))}.")
    say(f"What was merged into {branch} of team.git:\n")
    say(git("log", "--graph", "--format=%h %s", branch, cwd=where / "team.git"))
    say(f"\nliza verify: {(verified.stdout or verified.stderr).strip()}")
    say(f"The hosts' own words are in {where}/*.log; `liza -C {first} log` shows every change of the board.")
    return 0 if state.goal.is_over and verified.returncode == 0 else 1


def _keep_board(address: str, first: Path) -> None:
    """Leave the board in the files of the first clone, since its server goes."""
    (first / ".liza" / ADDRESS).unlink()
    copy_board(address, first / ".liza")
    open_board(first / ".liza").read()
