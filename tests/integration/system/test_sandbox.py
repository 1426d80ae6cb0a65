"""The sandbox, with real bubblewrap: what a hostile agent tries, and what an honest one needs."""

from __future__ import annotations

import http.server
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from liza.agents.command import CommandAgent
from liza.board.location import ADDRESS
from liza.daemon.project_sandbox import ProjectSandbox, hosts_in
from liza.domain.answers import Step
from liza.domain.model import Status
from liza.errors import LizaError
from liza.repo.pool import Worktrees
from liza.repo.private_gitdir import PrivateGitDir, import_after_crash, without_credentials
from liza.repo.repository import Repository, branch_of
from liza.system.process import STANDING_STATES, Job, leftover_processes, run_job
from liza.system.run_control import RunControl, RunEnding, RunLimits, StopLevel
from liza.system.sandbox.bubblewrap import Access, Mount, ProcessBounds, SandboxSpec, Tenant, in_mount_order
from liza.system.sandbox.egress_proxy import MODEL_HOSTS, Target, is_allowed, run_egress_proxy, target_of
from tests.support.repos import NOW, Hand
from tests.support.sandboxed_project import KEPT_IN, MORE, SECRET, SandboxedProject, skip_without_sandbox
from tests.support.scripted_team import ScriptedTeam

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE: Final = 20.0
SEGMENT: Final = (
    "import ctypes\nc = ctypes.CDLL(None)\nc.shmat.restype = ctypes.c_void_p\n"
    "a = c.shmat(c.shmget(0, ctypes.c_size_t(size), 0o1600), None, 0)\n"
    "ctypes.memset(ctypes.c_void_p(a), 1, ctypes.c_size_t(size))\nc.shmdt(ctypes.c_void_p(a))"
)


@pytest.fixture
def project(tmp_path: Path) -> SandboxedProject:
    return SandboxedProject(tmp_path)


@pytest.fixture(scope="module")
def prison(tmp_path_factory: pytest.TempPathFactory) -> SandboxedProject:
    """Return one project for all who try to get out: that none leaves a trace there is what is tested."""
    return SandboxedProject(tmp_path_factory.mktemp("prison"))


@pytest.fixture(scope="module")
def untouched(prison: SandboxedProject) -> dict[str, object]:
    """Return what nobody may change, as it was before anybody tried."""
    return prison.outside(but="task/t1")


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


READS: Final = {
    **{f"read ~/{name}": f'cat "$HOME/{name}"' for name in (*KEPT_IN, *MORE)},
    "read the board": "cat .liza/state.yaml",
    # Other projects of the machine may have boards, too: this one has a word that no other has.
    "look for the board everywhere": (
        r"find / \( -path /proc -o -path /sys -o -path /usr \) -prune -o -path '*.liza/state.yaml' "
        f"-exec grep -l {SECRET} {{}} + 2>/dev/null | grep ."
    ),
    "read another run": "cat .liza/runs/old/*",
    "read what git ignores in the checkout": "cat .env",
    "follow a link that it made": 'ln -s "$HOME/.ssh/id_rsa" key; cat key',
    "look for a socket of an ssh agent": "find /tmp /run -type s | grep .",
    "read the password in an address of git's": f"git config remote.origin.url | grep {SECRET}",
    "read the hashes of passwords": "grep : /etc/shadow",
    "look at other worktrees": "ls .worktrees/t2/a.txt",
    "look at git's records of them": "ls $(git rev-parse --git-common-dir)/worktrees/liza-2",
    "become root of a namespace of its own": "unshare --user --map-root-user true",
    "mount": "mount -o remount,rw /",
}
WRITES: Final = {
    "write to the system": "for place in / /usr /etc /opt; do test ! -w $place || exit 0; done; exit 1",
    "configure git": "git config user.name mallory",
    "plant a hook": "cd $(git rev-parse --git-common-dir) && mkdir -p hooks && echo x > hooks/post-commit",
    "plant attributes": "echo '* filter=x' > $(git rev-parse --git-common-dir)/info/attributes",
    "move the integration branch": "git commit -q --allow-empty -m x && git branch -f integration HEAD",
    "make a branch": "git branch mine",
    "make a tag": "git tag mine",
    "pack refs": "git pack-refs --all",
    "point HEAD elsewhere": "echo x > $(git rev-parse --git-common-dir)/HEAD",
    "add a worktree": "git worktree add -f ../other",
    "put another repository in the place of its own": "rm -rf .git || mv .git old || git init -q .",
    "lead git elsewhere": "echo gitdir: /tmp > .git",
    "tell git that it is elsewhere": "echo /tmp/.git > $(git rev-parse --git-dir)/gitdir",
    # Asked for, not done: what succeeds here has changed the machine.
    "change the kernel": "test -w /proc/sys/kernel/core_pattern",
    "restart the machine": "test -w /proc/sysrq-trigger",
    "change its control group": "find /sys -type f -writable 2>/dev/null | grep -m 1 .",
    "open a device": "find /dev -type b -writable | grep -m 1 .",
}
HARMLESS: Final = {  # it may think that it did it: what it changed is a copy
    "write to home": 'mkdir -p ~/.ssh && echo x > "$HOME/.ssh/id_rsa"',
    "move another task's branch": "git commit --allow-empty -qm x; git update-ref refs/heads/task/t2 HEAD",
    "delete all objects": "rm -rf $(git rev-parse --git-common-dir)/objects/*",
    "write beside its worktree": "echo x > ../x",
    "write to the checkout": "echo x > {root}/new.txt",
    "write to the board": "mkdir -p {root}/.liza && echo x > {root}/.liza/state.yaml",
    "write to another worktree": "mkdir -p {root}/.worktrees/t2 && echo x > {root}/.worktrees/t2/a.txt",
    "reset the checkout": "git -C {root} reset --hard",
    "clean everything": "git clean -ffdxq; git worktree prune; git gc --prune=now",
}


class TestAHostileAgent:
    @pytest.mark.parametrize("attempt", READS.values(), ids=READS)
    def test_what_it_may_not_see_is_not_there(self, prison: SandboxedProject, attempt: str) -> None:
        """Secrets, sockets, the board and the work of others are invisible, not only forbidden."""
        reply = prison.run(attempt)

        assert reply.code != 0
        assert SECRET not in prison.said()
        assert "[masked]" not in prison.said()

    @pytest.mark.parametrize("attempt", WRITES.values(), ids=WRITES)
    def test_what_it_may_not_change_it_cannot(
        self, prison: SandboxedProject, untouched: dict[str, object], attempt: str
    ) -> None:
        """All but the worktree is read-only, of the git directory too."""
        reply = prison.run(attempt)

        assert reply.code != 0
        assert prison.outside(but="task/t1") == untouched

    @pytest.mark.parametrize("attempt", HARMLESS.values(), ids=HARMLESS)
    def test_what_it_has_for_itself_is_a_copy(
        self, prison: SandboxedProject, untouched: dict[str, object], attempt: str
    ) -> None:
        """Home, refs and objects in the sandbox are its own; nothing of it but its own branch gets out."""
        prison.run(attempt.format(root=prison.user.directory))

        assert prison.outside(but="task/t1") == untouched

    def test_its_environment_holds_no_secret(self, prison: SandboxedProject) -> None:
        """Whoever prints the environment prints what the allowlist has."""
        prison.run("env; cat /proc/*/environ")

        assert SECRET not in prison.said()
        assert "MY_PASSWORD" not in prison.said()

    @pytest.mark.parametrize("variable", ["PGPASSFILE", "PGSERVICEFILE", "PGSSLKEY"])
    def test_what_lets_its_worker_into_the_board_is_not_there(
        self, prison: SandboxedProject, monkeypatch: pytest.MonkeyPatch, variable: str
    ) -> None:
        """A file of a password may be anywhere; this one stands for it where everything else is seen."""
        assert prison.run("grep . /etc/os-release").code == 0
        monkeypatch.setenv(variable, "/etc/os-release")
        assert prison.run("grep . /etc/os-release").code != 0

    @pytest.mark.parametrize("option", ["passfile", "sslkey", "servicefile"])
    def test_what_the_address_of_the_board_names_is_not_there(
        self, prison: SandboxedProject, option: str
    ) -> None:
        address = f"postgresql://db.example/team?sslmode=require&{option}=%2Fetc/os-release#build"
        (prison.home / ADDRESS).write_text(address)
        assert prison.run("grep . /etc/os-release").code != 0
        (prison.home / ADDRESS).unlink()
        assert prison.run("grep . /etc/os-release").code == 0

    def test_a_file_that_lets_in_is_hidden_also_where_all_around_it_is_shown(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tools = tmp_path / "person" / "tools"
        tools.mkdir(parents=True)
        prison = SandboxedProject(tmp_path, show=[str(tools)])
        secret = tools / "board.pass"
        secret.write_text(SECRET)
        assert prison.run(f"grep . {secret}").code == 0
        (prison.home / ADDRESS).write_text(f"postgresql://db.example/team?passfile={secret}")
        assert prison.run(f"grep . {secret}").code != 0
        (prison.home / ADDRESS).unlink()
        monkeypatch.setenv("PGPASSFILE", str(secret))
        assert prison.run(f"grep . {secret}").code != 0

    def test_processes_outside_do_not_exist_for_it(self, prison: SandboxedProject) -> None:
        """Nothing outside can be signalled, traced or looked at."""
        reply = prison.run(f"kill -0 {os.getpid()} || test -e /proc/{os.getpid()}/mem")

        assert reply.code != 0

    def test_a_forged_object_is_not_taken_over(self, project: SandboxedProject) -> None:
        """What is in the repository is what its name says: content under another's name stays outside."""
        forge = (
            "import glob, os, subprocess, zlib\n"
            "open('f', 'w').write('good')\n"
            "subprocess.run('git add f && git commit -qm x', shell=True, check=True)\n"
            "name = subprocess.check_output(['git', 'rev-parse', 'HEAD:f'], text=True).strip()\n"
            "common = subprocess.check_output(['git', 'rev-parse', '--git-common-dir'], text=True).strip()\n"
            "path = f'{common}/objects/{name[:2]}/{name[2:]}'\n"
            "os.unlink(path); open(path, 'wb').write(zlib.compress(b'blob 4\\0evil'))\n"
        )
        tip = project.user.git("rev-parse", "task/t1")

        with pytest.raises(LizaError, match=r"t1: the commit \w+ is not whole"):
            project.python(forge)

        assert project.user.git("rev-parse", "task/t1") == tip

    def test_a_reviewer_changes_nothing_at_all(self, project: SandboxedProject) -> None:
        """A step that is not an implementation has a worktree to read."""
        reply = project.run("echo x > a.txt || git commit --allow-empty -qm x || exit 3", step=Step.REVIEW)

        assert reply.code == 3
        assert project.agent.git("status", "--porcelain") == ""


class TestLimits:
    def test_a_fork_bomb_is_bounded(self, tmp_path: Path) -> None:
        """More processes than allowed end the run, where the kernel does not stop them before."""
        bomb = "import os, time\nfor _ in range(200):\n    os.fork() or time.sleep(60)\ntime.sleep(60)"
        project = SandboxedProject(tmp_path, processes=40)

        reply = project.python(bomb)

        assert reply.ending is RunEnding.CRASHED
        assert reply.seconds < PATIENCE
        assert leftover_processes(project.home / "runs", lambda _: True) == []

    def test_memory_is_bounded(self, tmp_path: Path) -> None:
        """A process that wants more than it may have is told so, and the machine does not notice."""
        project = SandboxedProject(tmp_path, memory_mb=200)

        assert project.python("bytearray(10 ** 9)").code == 1
        assert "MemoryError" in project.said()

    @pytest.mark.parametrize(
        "hoard",
        [
            "import mmap\nm = mmap.mmap(-1, size)\nfor at in range(0, size, 4096): m[at] = 1",
            "import os\nf = os.memfd_create('x')\nfor _ in range(size >> 20): os.write(f, b'x' * (1 << 20))",
            SEGMENT,
        ],
        ids=["mapped by several", "a file in memory", "a segment that nobody maps"],
    )
    def test_memory_that_is_shared_is_bounded(self, tmp_path: Path, hoard: str) -> None:
        """No limit of a process counts it."""
        project = SandboxedProject(tmp_path, memory_mb=100)

        reply = project.python(f"size = 300 << 20\n{hoard}\nimport time\ntime.sleep(50)")

        assert reply.ending is RunEnding.CRASHED, project.said()
        assert "MB of memory, and may share 100" in reply.why

    def test_a_file_is_bounded(self, tmp_path: Path) -> None:
        """The disk is not filled by one file."""
        project = SandboxedProject(tmp_path, file_mb=1)

        assert project.run("head -c 9000000 /dev/zero > big").code != 0
        assert (project.worktree.path / "big").stat().st_size <= 1 << 20


@pytest.fixture
def server() -> Iterator[int]:
    """A web server on loopback that says yes; its port."""

    class Yes(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"yes")

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Yes) as serving:
        threading.Thread(target=serving.serve_forever, args=(0.05,), daemon=True).start()
        yield serving.server_port
        serving.shutdown()


GET: Final = "import urllib.request as r; print(r.urlopen('http://{}', timeout=5).read())"
THROUGH: Final = (
    "import os, http.client as h\n"
    "host, _, port = os.environ['HTTPS_PROXY'].removeprefix('http://').partition(':')\n"
    "c = h.HTTPConnection(host, int(port), timeout=5); c.set_tunnel('{}', {}); c.request('GET', '/')\n"
    "print(c.getresponse().read())"
)


class TestTheNetwork:
    def test_full_is_what_the_user_has(self, tmp_path: Path, server: int) -> None:
        """Without a word about it nothing is cut off."""
        assert "yes" in SandboxedProject(tmp_path).python(GET.format(f"127.0.0.1:{server}")).text

    def test_none_is_none(self, tmp_path: Path, server: int) -> None:
        """Not even what listens on loopback outside can be reached."""
        assert SandboxedProject(tmp_path, network="none").python(GET.format(f"127.0.0.1:{server}")).code == 1

    def test_model_only_reaches_what_is_on_the_list(self, tmp_path: Path, server: int) -> None:
        """A model that is served on this machine is reached under its own address, and through the proxy."""
        project = SandboxedProject(tmp_path, network="model-only", hosts=[f"127.0.0.1:{server}"])

        assert "yes" in project.python(GET.format(f"127.0.0.1:{server}")).text, project.said()
        assert "yes" in project.python(THROUGH.format("127.0.0.1", server)).text, project.said()

    def test_model_only_reaches_nothing_else(self, tmp_path: Path, server: int) -> None:
        """What is not on the list is refused, also to those who talk to the proxy themselves."""
        project = SandboxedProject(tmp_path, network="model-only")

        assert project.python(GET.format(f"127.0.0.1:{server}")).code == 1
        assert project.python(THROUGH.format("127.0.0.1", server)).code == 1
        assert "403" in project.said()

    def test_the_list_is_exact(self) -> None:
        """A host stands for its port 443, a pattern for one kind of name, and nothing for its neighbours."""
        hosts = ("api.example.org", "*.example.net", "localhost:8080")

        assert is_allowed(Target("API.example.org", 443), hosts)
        assert is_allowed(Target("a.example.net", 443), hosts)
        assert is_allowed(Target("localhost", 8080), hosts)
        assert not is_allowed(Target("api.example.org", 80), hosts)
        assert not is_allowed(Target("api.example.org.evil", 443), hosts)
        assert not is_allowed(Target("example.net", 443), hosts)
        assert not is_allowed(Target("evil.a.example.net", 443), hosts), "an asterisk is one label"

    @pytest.mark.parametrize(
        ("host", "is_served"),
        [
            ("bedrock-runtime.eu-west-1.amazonaws.com", True),
            ("bedrock-runtime.mine.s3.eu-west-1.amazonaws.com", False),
            ("bedrock-runtime.s3-website.eu-west-1.amazonaws.com", False),
            ("mine.openai.azure.com", True),
            ("a.b.openai.azure.com", False),
        ],
    )
    def test_no_bucket_of_anybody_s_serves_models(self, host: str, *, is_served: bool) -> None:
        assert is_allowed(Target(host, 443), MODEL_HOSTS) is is_served

    def test_an_address_of_the_new_kind_is_one(self) -> None:
        hosts = (*hosts_in({"OPENAI_BASE_URL": "http://[::1]:8080/v1"}), "[fe80::1]", "nonsense:x")

        assert is_allowed(Target("::1", 8080), hosts)
        assert is_allowed(Target("fe80::1", 443), hosts)
        assert not is_allowed(Target("::1", 443), hosts)

    @pytest.mark.parametrize(
        "head",
        [
            b"CONNECT [::1 HTTP/1.1",
            b"CONNECT http://[x HTTP/1.1",
            b"CONNECT a..b:443 HTTP/1.1",
            b"CONNECT " + b"a" * 70 + b".example.net:443 HTTP/1.1",
            b"CONNECT a\0b.example.net:443 HTTP/1.1",
            b"GET http://localhost:1/",
            b"\xff\xfe",
            b"",
        ],
    )
    def test_a_request_that_is_none_is_refused_in_a_line(
        self, tmp_path: Path, capfd: pytest.CaptureFixture[str], head: bytes
    ) -> None:
        """Not with a traceback in the log of the worker."""
        with (
            run_egress_proxy(tmp_path / "way-out", ("*.example.net", "localhost:1")),
            socket.socket(socket.AF_UNIX) as near,
        ):
            near.connect(str(tmp_path / "way-out"))
            near.sendall(head + b"\r\n\r\n")
            assert near.makefile("rb").readline().startswith((b"HTTP/1.1 400", b"HTTP/1.1 502"))

        assert capfd.readouterr().err == ""

    @pytest.mark.parametrize(
        ("line", "target"),
        [
            ("CONNECT a.b:443 HTTP/1.1", Target("a.b", 443)),
            ("CONNECT [::1]:443 HTTP/1.1", Target("::1", 443)),
            ("GET http://a.b/c?d HTTP/1.1", Target("a.b", 80)),
            ("GET / HTTP/1.1", None),
            ("CONNECT a.b:x HTTP/1.1", None),
            ("", None),
        ],
    )
    def test_a_request_says_where_it_goes(self, line: str, target: Target | None) -> None:
        assert target_of(line) == target


class TestAnHonestAgent:
    def test_a_commit_on_its_own_branch_arrives(self, project: SandboxedProject) -> None:
        """The one thing that leaves the sandbox, with the user's name on it."""
        line = "echo hi > f; git add f; git commit -qm 'Add f'; git log --oneline; git status -s"
        reply = project.run(line)

        assert reply.code == 0, project.said()
        assert project.user.git("log", "-1", "--format=%s %an", "task/t1") == "Add f Ada"
        assert project.user.git("show", "task/t1:f") == "hi"
        assert project.agent.git("status", "--porcelain") == ""

    def test_it_goes_on_from_its_last_commit(self, project: SandboxedProject) -> None:
        """A second run sees what the first one did, also what a repack moved, and can amend it."""
        project.run("echo 1 > f; git add f; git commit -qm one; git repack -adq")
        reply = project.run("git log -1 --format=%s; echo 2 > f; git commit -qa --amend -m two")

        assert (reply.code, reply.text) == (0, "one\n"), project.said()
        assert project.user.git("log", "-1", "--format=%s", "task/t1") == "two"

    def test_tests_can_run(self, project: SandboxedProject) -> None:
        """A home, a scratch and a cache of its own, and the user's interpreter."""
        test = (
            "import tempfile, unittest\nclass T(unittest.TestCase):\n  def test(self): tempfile.mkdtemp()\n"
        )
        (project.worktree.path / "test_x.py").write_text(test)

        reply = project.run(f"{sys.executable} -m unittest -q && touch ~/x && mkdir -p ~/.cache/y")

        assert reply.code == 0, project.said()
        assert not (project.person / "x").exists()

    def test_what_a_person_shows_is_seen(self, tmp_path: Path) -> None:
        """`sandbox.show` opens a path for reading, and not the secrets that lie in it."""
        person = tmp_path / "person"
        project = SandboxedProject(tmp_path, show=[str(person / ".config")])
        (person / ".config" / "tool").write_text("blue")

        assert project.run("cat ~/.config/tool").text == "blue"
        assert project.run("cat ~/.config/gcloud/token").code != 0
        assert project.run("echo x > ~/.config/tool").code != 0

    @pytest.mark.parametrize(("script", "code"), [("exit 7", 7), ("kill -9 $$", -9), ("kill $$", -15)])
    def test_its_exit_code_is_its_own(self, prison: SandboxedProject, script: str, code: int) -> None:
        """Through the sandbox, a signal is a signal and a code is a code."""
        assert prison.run(script).code == code

    def test_it_gets_a_moment_to_tidy_up(self, project: SandboxedProject) -> None:
        """SIGTERM reaches the agent and not its sandbox, which would take it along."""
        stop, tidied = RunControl(), project.worktree.path / "tidied"
        script = "trap 'touch tidied; exit 0' TERM; touch begun; while :; do sleep 0.05; done"
        thread = threading.Thread(target=lambda: project.run(script, stop=stop))
        thread.start()
        wait_until((project.worktree.path / "begun").exists)
        stop.ask()
        thread.join(PATIENCE)

        assert tidied.exists()
        assert leftover_processes(project.home / "runs", lambda _: True) == []

    def test_a_pause_freezes_all_of_it(self, project: SandboxedProject) -> None:
        """What escaped to a session of its own is still inside, and stands still as well."""
        stop = RunControl()
        script = "setsid sh -c 'touch begun; while :; do sleep 0.01; done' & while :; do sleep 0.01; done"
        thread = threading.Thread(target=lambda: project.run(script, stop=stop))
        thread.start()
        wait_until((project.worktree.path / "begun").exists)
        stop.pause()
        try:
            wait_until(
                lambda: (
                    {each.state for each in leftover_processes(project.home / "runs", lambda _: True)}
                    <= STANDING_STATES
                )
            )
        finally:
            stop.now()
            thread.join(PATIENCE)

        assert stop.level is StopLevel.NOW
        assert leftover_processes(project.home / "runs", lambda _: True) == []

    def test_silence_is_heard_through_the_sandbox(self, project: SandboxedProject) -> None:
        """CPU inside counts as a sign of life, and a sleep does not."""
        limits = RunLimits(silence=1.0, total=3.0)

        assert project.run("while :; do :; done", limits=limits).ending is RunEnding.TIMEOUT
        assert project.run("sleep 60", limits=limits).ending is RunEnding.SILENT

    def test_nothing_outlives_a_killed_worker(self, project: SandboxedProject) -> None:
        """The sandbox dies with whoever started it, and all that is in it with the sandbox."""
        code = (
            "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1])\n"
            "from tests.support.sandboxed_project import SandboxedProject as Project\n"
            "Project(Path(sys.argv[2])).run('touch begun; sleep 300 & sleep 300')\n"
        )
        root = str(Path(__file__).parents[3])
        place = project.user.directory.parent / "again"
        place.mkdir()
        worker = subprocess.Popen([sys.executable, "-c", code, root, str(place)])
        wait_until((place / "project/.worktrees/t1/begun").exists)
        worker.kill()
        worker.wait()

        wait_until(lambda: leftover_processes(place / "project/.liza/runs", lambda _: True) == [])

    def test_it_may_bring_a_sandbox_of_its_own(self, project: SandboxedProject) -> None:
        """Where its row says so, namespaces can be made inside; a sandbox in the sandbox holds."""
        script = "bwrap --ro-bind / / --unshare-user --unshare-net --dev /dev true && unshare --user true"
        folder = project.home / "runs" / "nest"
        job = Job(("/bin/sh", "-c", script), project.worktree.path, folder, dict(os.environ))

        codes = []
        for visit in (Tenant("t1.nests", may_nest=True), Tenant("t1.free")):
            with project.guard.wrap(job, visit) as wrapped:
                codes.append(run_job(wrapped, RunControl()).code)

        assert codes[0] == 0
        assert codes[1] != 0

    def test_its_own_login_is_kept(self, project: SandboxedProject) -> None:
        """What a row names of the user's home is there: some to read, some to write."""
        (project.person / ".agent").mkdir()
        (project.person / ".agentrc").write_text("blue")
        script = "cat ~/.agentrc; echo token > ~/.agent/login; echo x > ~/.agentrc"
        environment = {"PATH": os.environ["PATH"], "HOME": str(project.person)}
        folder = project.home / "runs" / "login"
        job = Job(("/bin/sh", "-c", script), project.worktree.path, folder, environment)

        with project.guard.wrap(job, Tenant("t1.x", shows=(".agentrc",), keeps=(".agent",))) as wrapped:
            outcome = run_job(wrapped, RunControl())

        assert (outcome.out, (project.person / ".agent" / "login").read_text()) == ("blue", "token\n")
        assert (project.person / ".agentrc").read_text() == "blue"

    @pytest.mark.parametrize("home", ["/", "/nonexistent/service", "a file"])
    def test_a_home_in_which_nobody_lives_is_replaced(
        self, project: SandboxedProject, monkeypatch: pytest.MonkeyPatch, home: str
    ) -> None:
        """Accounts of services have such a one; what runs there gets an empty directory to write to."""
        monkeypatch.setenv("HOME", str(project.person / ".bashrc") if home == "a file" else home)
        (project.person / ".bashrc").touch()
        environment = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
        script = "cd && ls -A && echo x > mine && cat mine"
        job = Job(("/bin/sh", "-c", script), project.worktree.path, project.home / "runs" / "h", environment)

        with project.guard.wrap(job, Tenant("t1.home")) as wrapped:
            outcome = run_job(wrapped, RunControl())

        assert (outcome.out, outcome.err) == ("x\n", "")


class TestThePlace:
    """The worktree is seen where the user's checkout is, with what was installed there inside."""

    @pytest.mark.parametrize("step", [Step.IMPLEMENT, Step.REVIEW])
    def test_what_is_installed_is_there_and_is_no_part_of_the_work(self, tmp_path: Path, step: Step) -> None:
        """To read, by relative and absolute paths; git does not see it, and nothing of it stays."""
        project = SandboxedProject(tmp_path, show=["local.cfg"])
        project.user.write("node_modules/lib/index.js", "1")
        project.user.write("local.cfg", "blue")
        root = project.user.directory
        reply = project.run(
            f"pwd; cat node_modules/lib/index.js {root}/local.cfg; git status --porcelain; "
            "echo x > node_modules/x || echo no",
            step=step,
        )

        assert (reply.code, reply.text) == (0, f"{root}\n1blueno\n"), project.said()
        assert not (project.worktree.path / "node_modules").exists()
        assert not (project.worktree.path / "local.cfg").exists()
        assert not (root / "node_modules" / "x").exists()

    def test_what_the_tree_has_itself_wins(self, project: SandboxedProject) -> None:
        """A path that is tracked, or that the project's setup made, is not hidden by what is installed."""
        project.user.write("node_modules/lib", "the checkout's")
        project.user.write(".venv/lib", "the checkout's")
        project.agent.write("node_modules/lib", "the tree's")

        assert project.run("cat node_modules/lib .venv/lib").text == "the tree'sthe checkout's"

    def test_what_a_killed_run_left_is_removed(self, project: SandboxedProject) -> None:
        """The places of mounts are written down before they are made."""
        (project.home / "sandboxes" / "t1.coder-1").mkdir(parents=True)
        (project.home / "sandboxes" / "t1.coder-1" / "points").write_text("sub\0sub/local.cfg\0kept")
        project.agent.write("sub/local.cfg", "")
        project.agent.write("kept", "work")

        project.run("true")

        assert project.agent.git("status", "--porcelain") == "?? kept"

    def test_the_program_of_an_agent_is_the_users_own(self, project: SandboxedProject) -> None:
        """A coder that rewrites the program of its reviewer in the tree changes nothing."""
        program = project.user.write("tools/agent.sh", "#!/bin/sh\necho honest; cat $(dirname $0)/rules\n")
        project.user.write("tools/rules", "strict")
        program.chmod(0o755)
        project.agent.write("tools/agent.sh", "#!/bin/sh\necho bribed\n").chmod(0o755)
        project.agent.write("tools/rules", "lax")

        for words in (["/bin/sh", str(program)], [str(program)], ["agent.sh"]):
            path = f"{program.parent}:{os.environ['PATH']}"
            command = CommandAgent(words, environment={"PATH": path}, sandbox=project.guard)
            reply = command.run(project.brief(step=Step.REVIEW), RunControl())
            assert reply.text == "honest\nstrict", project.said()

    def test_its_brief_is_true_inside(self, project: SandboxedProject) -> None:
        """The working directory that it names is the one that there is."""
        show = "import json, os; print(json.load(open(os.environ['LIZA_BRIEF']))['cwd'] == os.getcwd())"

        assert project.python(show).text == "True\n"

    def test_a_checkout_that_is_a_linked_worktree_itself(self, tmp_path: Path) -> None:
        """Its git directory is somewhere else, and its objects may be borrowed from a third place."""
        main = SandboxedProject(tmp_path)
        clone, linked = Hand(tmp_path / "clone"), tmp_path / "linked"
        main.user.git("clone", "-q", "--shared", ".", str(clone.directory))
        clone.git("config", "user.name", "Ada")
        clone.git("config", "user.email", "ada@example.org")
        clone.git("worktree", "add", "-q", str(linked))
        repository = Repository.around(linked)
        worktree = Worktrees(repository).prepare("t1", main.user.base, at=NOW)
        guard = ProjectSandbox(linked / ".liza", repository, main.guard.sandbox)
        script = "git log --format=%s && echo hi > f && git add f && git commit -qm two; git status -s; pwd"
        environment = {"PATH": os.environ["PATH"], "HOME": str(main.person)}
        command = CommandAgent(["/bin/sh", "-c", script], environment=environment, sandbox=guard)

        reply = command.run(main.brief(cwd=worktree.path), RunControl())

        assert reply.text.splitlines()[-1] == str(linked), main.said()
        assert Hand(linked).git("log", "-1", "--format=%s", "task/t1") == "two"


class TestTheWholeStory:
    def test_work_is_merged_from_sandbox_to_sandbox(self, tmp_path: Path) -> None:
        """Coder, reviewer and gate are sandboxed, and the commit is the agent's own."""
        skip_without_sandbox()
        act = {"write": {"t1.txt": "x\n"}, "commit": "Mine", "answer": {"status": "done", "summary": "x"}}
        gate = "test -f t1.txt && test ! -e .liza/state.yaml && ! git branch -f main HEAD"
        team = ScriptedTeam(
            tmp_path,
            {"implement": act},
            sandbox={"mode": "require"},
            gates={"test": gate, "setup": "touch ~/x"},
        )
        team.task()

        team.turns("coder-1", "reviewer-1")

        assert team.status() is Status.MERGED
        assert "Mine" in team.user.git("log", "--format=%s", team.ref)
        assert not team.state.anomalies

    def test_a_step_that_is_read_only_is_so(self, tmp_path: Path) -> None:
        """A checkpoint that writes is an agent that failed: there is nothing to put back."""
        skip_without_sandbox()
        team = ScriptedTeam(tmp_path, {"checkpoint": {"write": {"a.txt": "x"}}}, sandbox={"mode": "require"})
        team.task()

        team.turn("coder-1")

        assert "fail" in team.events()
        assert "Read-only file system" in str(team.state.task("t1").history[-1].facts)


class TestACrash:
    def test_what_was_committed_before_a_worker_died_is_taken_over(self, project: SandboxedProject) -> None:
        """The copy of the branch is on disk: whoever prepares the worktree next brings it home."""
        folder = project.home / "sandboxes" / "t1.coder-1" / "git"
        gitdir = PrivateGitDir(project.worktree, folder, "t1")
        gitdir.create_copies()
        tree = project.user.git("rev-parse", "HEAD^{tree}")
        lost = project.user.git(
            *("commit-tree", "-p", project.user.base, "-m", "lost", tree),
            GIT_OBJECT_DIRECTORY=str(folder / "objects"),
            GIT_ALTERNATE_OBJECT_DIRECTORIES=str(project.user.directory / ".git/objects"),
        )
        (folder / "refs" / "t1").write_text(f"{lost}\n")

        import_after_crash(project.home / "sandboxes", project.worktree, "t1")
        import_after_crash(project.home / "sandboxes", project.worktree, "t1")

        assert project.user.git("rev-parse", branch_of("t1")) == lost

    def test_a_branch_that_moved_meanwhile_is_left_alone(self, project: SandboxedProject) -> None:
        """Two that claim one branch are not merged behind anybody's back."""
        gitdir = PrivateGitDir(project.worktree, project.home / "sandboxes" / "t1.coder-1" / "git", "t1")
        gitdir.create_copies()
        (gitdir.folder / "refs" / "t1").write_text(f"{project.user.commit({'c': 'c'})}\n")
        other = project.user.commit({"d": "d"})
        project.user.git("update-ref", branch_of("t1"), other)

        with pytest.raises(LizaError, match="t1: its branch moved"):
            gitdir.import_commits()

        assert project.user.git("rev-parse", branch_of("t1")) == other


class TestTheWords:
    def test_the_more_exact_path_wins(self) -> None:
        """What is inside of something is mounted after it, and of two at one path the later counts."""
        one, two = Mount(Path("/a/b"), Access.READ), Mount(Path("/a"), Access.NOTHING)

        assert in_mount_order([one, two]) == [two, one]
        assert in_mount_order([one, Mount(Path("/a/b"), Access.WRITE)]) == [Mount(Path("/a/b"), Access.WRITE)]

    def test_a_cage_that_may_nest_leaves_user_namespaces_on(self) -> None:
        """A program that brings its own sandbox can build it inside."""
        sandbox = SandboxSpec((), Path("/"), ProcessBounds(processes=3))

        assert "--disable-userns" in sandbox.around(["true"])
        assert "--disable-userns" not in SandboxSpec((), Path("/"), may_nest=True).around(["true"])
        assert "--nproc=3" in sandbox.around(["true"])

    def test_a_configuration_is_shown_without_its_credentials(self) -> None:
        """Addresses lose their passwords; headers and helpers go."""
        text = '[remote "o"]\n\turl = https://a:b@c/d\n[http]\n\textraheader = Authorization: x\n'

        assert without_credentials(text) == '[remote "o"]\n\turl = https://c/d\n[http]\n'
