"""The one door to git: a subprocess, because no library is faster and none is as well tested.

A call through it obeys neither the caller's environment nor the habits in the user's configuration: no hook
runs, nothing is signed, nobody is asked for a password, nothing opens an editor or a pager, submodules are
left alone, and replaced or grafted objects do not count. What the user's configuration says about content
stays in force, because a checkout would be wrong without it: line endings, filters (`filter.*`, as of Git
LFS) and merge drivers (`merge.*`). Those name programs, so whoever can write the configuration can run one;
`liza.repo.fingerprint` therefore looks at the configuration by itself, before any git runs, and
`liza.repo.filters` sees to it that no agent's directory decides which program a name stands for.

Every call has a limit: what git reads may be an agent's, and a pipe in place of a file never ends.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from liza.errors import FULL, DiskTrouble, GitFailed, LizaError, UsageError
from liza.system.wakeup import wait_readable

# All else that starts with GIT_ goes: a hook or an alias of the caller's must not point us at another
# repository than the one we stand in, and tracing would mix with what git says.
_KEPT_VARIABLES: Final = frozenset(
    {
        "GIT_AUTHOR_EMAIL",
        "GIT_AUTHOR_NAME",
        "GIT_CEILING_DIRECTORIES",
        "GIT_COMMITTER_EMAIL",
        "GIT_COMMITTER_NAME",
        "GIT_CONFIG_GLOBAL",
        "GIT_CONFIG_NOSYSTEM",
        "GIT_CONFIG_SYSTEM",
        "GIT_EXEC_PATH",
    }
)

_ENVIRONMENT: Final = {
    "GIT_ASKPASS": "true",
    "GIT_EDITOR": "true",
    "GIT_GRAFT_FILE": os.devnull,
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",  # a look at the user's checkout must not rewrite its index
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C.UTF-8",
    "SSH_ASKPASS": "true",
}

LIMIT: Final = 900.0  # seconds; a checkout of gigabytes, fetched by a filter, takes minutes
QUICK_LIMIT: Final = 60.0  # seconds for what reads a few small files; it takes milliseconds
MOST_KILLED: Final = 3  # times that a git which somebody killed is started again
LOCK_PATIENCE: Final = 3.0  # seconds git waits for a lock on a ref; the living hold one for milliseconds

_SETTINGS: Final = {
    "advice.detachedHead": "false",
    "advice.graftFileDeprecated": "false",  # it would be said of the empty one that we name
    "commit.gpgSign": "false",
    "core.alternateRefsCommand": "",
    "core.checkStat": "default",
    "core.filesRefLockTimeout": str(int(LOCK_PATIENCE * 1000)),
    "core.fsmonitor": "false",  # it names a program, and a lying one hides changes
    # The board names commits by lines that are synced: what they name has to be on disk before. By the batch
    # where a command writes many objects.
    "core.fsync": "committed,reference",
    "core.fsyncMethod": "batch",
    "core.hooksPath": os.devnull,
    "core.logAllRefUpdates": "true",  # salvage finds what a reset threw away in the reflogs
    "core.packedRefsTimeout": "5000",
    "core.quotePath": "false",
    "core.splitIndex": "false",
    "core.trustctime": "true",  # the one time stamp of a file that cannot be set back
    "credential.helper": "",
    "gc.auto": "0",
    "i18n.commitEncoding": "UTF-8",
    "i18n.logOutputEncoding": "UTF-8",
    "log.showSignature": "false",
    "maintenance.auto": "false",
    "submodule.recurse": "false",
    # A merge must come out the same when it is checked again, on another machine.
    "merge.conflictStyle": "merge",
    "merge.directoryRenames": "conflict",
    "merge.renameLimit": "7000",
    "merge.renames": "true",
    "merge.renormalize": "false",
}
_OPTIONS: Final = tuple(word for name, value in _SETTINGS.items() for word in ("-c", f"{name}={value}"))


NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class GitResult(NamedTuple):
    """How a git command ended."""

    code: int
    output: bytes
    said: str

    @property
    def text(self) -> str:
        """What it printed; a path that is not UTF-8 survives the way there and back."""
        return decode_git(self.output).removesuffix("\n")


def decode_git(output: bytes) -> str:
    return output.decode("utf-8", "surrogateescape")


def encode_git(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def ask(
    *words: str,
    cwd: Path,
    environment: Mapping[str, str] = NOTHING,
    settings: Mapping[str, str] = NOTHING,
    stdin: bytes = b"",
    limit: float = LIMIT,
) -> GitResult:
    """Run git in *cwd* and return its answer, whatever the exit code is; raise where the disk is full.

    *settings* are those of this command alone; it may take *limit* seconds.
    """
    environment = {**environment, **_config_environment(settings)}
    answer = _run_once(words, cwd, environment, stdin, limit)
    for _ in range(MOST_KILLED):
        # Killed from outside, it has said nothing about the repository; what it had done fits a second try.
        if answer.code != -signal.SIGKILL:
            break
        answer = _run_once(words, cwd, environment, stdin, limit)
    if full := [number for number in FULL if answer.code != 0 and os.strerror(number) in answer.said]:
        raise DiskTrouble(f"run git {words[0]}", OSError(full[0], os.strerror(full[0])))
    return answer


def _config_environment(settings: Mapping[str, str]) -> dict[str, str]:
    found = {} if not settings else {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (key, value) in enumerate(settings.items()):
        found |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return found


def _run_once(
    words: tuple[str, ...], cwd: Path, environment: Mapping[str, str], stdin: bytes, limit: float
) -> GitResult:
    with _start(words, cwd, environment, stderr=subprocess.PIPE) as process:
        try:
            output, said = process.communicate(stdin, timeout=limit)
        except BaseException as error:
            _kill_group(process)
            if isinstance(error, subprocess.TimeoutExpired):
                raise GitFailed(words[0], f"it was not done after {limit:g} seconds in {cwd}") from error
            raise
    return GitResult(process.returncode, output, decode_git(said).strip())


def _start(
    words: tuple[str, ...], cwd: Path, environment: Mapping[str, str], *, stderr: int
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            ["git", *_OPTIONS, *words],
            cwd=cwd,
            env=_inherited_environment() | _ENVIRONMENT | _MARKER_VARIABLES | dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            process_group=0,  # Ctrl-C is for us: a git that is moving a ref ends what it began
        )
    except OSError as error:
        raise _start_error(cwd, error) from error


class BatchProcess:
    """A git command that answers one request after the other; it ends by itself when we do.

    For whoever has a lock on it: requests of two threads would mix.
    """

    def __init__(self, *words: str, cwd: Path, environment: Mapping[str, str]) -> None:
        self._words = words
        self._process = _start(words, cwd, environment, stderr=subprocess.DEVNULL)
        self._stdin = self._process.stdin.fileno() if self._process.stdin else -1
        self._stdout = self._process.stdout.fileno() if self._process.stdout else -1
        self._buffer = bytearray()
        self._deadline = 0.0
        self.has_ended = False  # by itself, or killed by somebody

    def send(self, request: bytes) -> None:
        """Write *request*; all answers have been read.

        Where git answers before it has read all, only as much as a pipe takes at once: `select.PIPE_BUF`.
        """
        self._deadline = time.monotonic() + QUICK_LIMIT
        try:
            while request:
                request = request[os.write(self._stdin, request) :]
        except OSError as error:
            raise self._failure() from error

    def line(self) -> bytes:
        """Return the next line of the answer, without its end."""
        end = self._buffer.find(b"\n")
        while end < 0:
            self._receive()
            end = self._buffer.find(b"\n")
        return self._take(end + 1)[:-1]

    def content(self, size: int) -> bytes:
        """Return *size* bytes of the answer, without the line feed that follows them."""
        while len(self._buffer) <= size:
            self._receive()
        return self._take(size + 1)[:-1]

    def close(self) -> None:
        """End it, at any moment: an object is written whole or not at all."""
        _kill_group(self._process)
        for stream in (self._process.stdin, self._process.stdout):
            if stream:
                stream.close()

    def _receive(self) -> None:
        if not wait_readable(self._stdout, self._deadline - time.monotonic()):
            raise GitFailed(self._words[0], f"it did not answer within {QUICK_LIMIT:g} seconds")
        piece = os.read(self._stdout, 1 << 16)
        if not piece:
            raise self._failure()
        self._buffer += piece

    def _take(self, size: int) -> bytes:
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

    def _failure(self) -> GitFailed:
        self.has_ended = True
        return GitFailed(self._words[0], "it ended before it had answered")


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill git's process group: a filter that survives would hold the pipes open."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def mark_processes(name: str, value: str) -> None:
    """Set the variable *name* in the environment of every git process, by which leftovers are found and
    killed.
    """
    _MARKER_VARIABLES[name] = value


_MARKER_VARIABLES: Final[dict[str, str]] = {}


def git(*words: str, cwd: Path, environment: Mapping[str, str] = NOTHING, stdin: bytes = b"") -> str:
    """Run git in *cwd* and return what it printed; raise its own sentence where it fails."""
    answer = ask(*words, cwd=cwd, environment=environment, stdin=stdin)
    if answer.code != 0:
        raise GitFailed(words[0], answer.said or answer.text.strip())
    return answer.text


def _inherited_environment() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if name in _KEPT_VARIABLES or not name.startswith(("GIT_", "LC_", "LANG"))
    }


def _start_error(cwd: Path, error: OSError) -> LizaError:
    if not cwd.is_dir():
        return LizaError(f"the directory {cwd} is gone, so git cannot run in it")
    if isinstance(error, FileNotFoundError):
        return LizaError("git is not installed, or not on the PATH; install it")
    return LizaError(f"git cannot be started: {error.strerror or error}")


def git_version() -> tuple[int, ...]:
    """Return the first two numbers of git's version."""
    found = re.search(r"(\d+)\.(\d+)", git("version", cwd=Path.cwd()))
    return tuple(map(int, found.groups())) if found else ()


def top_level(cwd: Path) -> Path:
    """Return the root of the checkout that *cwd* is in."""
    answer = ask("rev-parse", "--show-toplevel", cwd=cwd)
    if answer.code == 0 and "\n" in answer.text:
        raise UsageError(
            f"the path {answer.text!r} has a line break in it, which git's lists of worktrees cannot tell; "
            "rename that directory"
        )
    if answer.code == 0:
        return Path(answer.text)
    if "dubious ownership" in answer.said:
        raise GitFailed("rev-parse", answer.said)
    if ask("rev-parse", "--is-bare-repository", cwd=cwd).text == "true":
        raise UsageError(
            f"{cwd} is a bare repository, and agents need files; make a checkout beside it, as by "
            "`git worktree add ../checkout`, and work there"
        )
    if ask("rev-parse", "--is-inside-git-dir", cwd=cwd).text == "true":
        raise UsageError(f"{cwd} is inside of git's own directory; go to the checkout")
    raise UsageError(f"{cwd} is not in a git repository; run `git init` there first")


def exclude(root: Path, patterns: tuple[str, ...]) -> list[str]:
    """Make git ignore *patterns* in this clone only; return those that were not ignored before."""
    path = root / git("rev-parse", "--git-path", "info/exclude", cwd=root)
    known = path.read_text().splitlines() if path.exists() else []
    missing = [pattern for pattern in patterns if pattern not in known]
    if missing:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write("".join(f"{line}\n" for line in ([""] if known and known[-1] else []) + missing))
    return missing
