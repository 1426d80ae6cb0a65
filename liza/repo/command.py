"""The one door to git: a subprocess a command, and processes that stay for refs and objects.

A call through it obeys neither the caller's environment nor the habits in the user's configuration: no hook
runs, nothing is signed, nobody is asked for a password, nothing opens an editor or a pager, submodules are
left alone, and replaced or grafted objects do not count. What the user's configuration says about content
stays in force, because a checkout would be wrong without it: line endings, filters (`filter.*`, as of Git
LFS) and merge drivers (`merge.*`). Those name programs, so whoever can write the configuration can run one;
`liza.repo.snapshot` therefore looks at the configuration by itself, before any git runs, and
`liza.repo.worktree` sees to it that no agent's directory decides which program a name stands for.

Every call has a limit: what git reads may be an agent's, and a pipe in place of a file never ends.
"""

from __future__ import annotations

import atexit
import os
import re
import select
import signal
import stat
import subprocess
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from types import MappingProxyType
from typing import Final, NamedTuple, TypeVar

from liza.errors import FULL, DiskTrouble, GitFailed, LizaError, UsageError
from liza.system.run_control import wait_readable

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


def ask_git(
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
    answer = ask_git(*words, cwd=cwd, environment=environment, stdin=stdin)
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
    answer = ask_git("rev-parse", "--show-toplevel", cwd=cwd)
    if answer.code == 0 and "\n" in answer.text:
        raise UsageError(
            f"the path {answer.text!r} has a line break in it, which git's lists of worktrees cannot tell; "
            "rename that directory"
        )
    if answer.code == 0:
        return Path(answer.text)
    if "dubious ownership" in answer.said:
        found = re.search(r"repository at '(.+)'", answer.said)
        place = found[1] if found else cwd
        raise LizaError(
            f"{place} belongs to another user, so git does not read it; run Liza as that user, or trust it, "
            f"as by `git config --global --add safe.directory {place}`"
        )
    if ask_git("rev-parse", "--is-bare-repository", cwd=cwd).text == "true":
        raise UsageError(
            f"{cwd} is a bare repository, and agents need files; make a checkout beside it, as by "
            "`git worktree add ../checkout`, and work there"
        )
    if ask_git("rev-parse", "--is-inside-git-dir", cwd=cwd).text == "true":
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


# Refs, commits, trees and blobs by git processes that stay: one that reads, one for trees, one for commits.
#
# They are the same git as everywhere else, with the same environment: refs in any format, either hash, a
# limit for each answer. A name is looked up anew each time. What never changes, since its name is its hash,
# is kept.

MOST_OPEN: Final = 4  # processes that stay; whoever has more repositories than that asks one after the other
_READ: Final = ("cat-file", "--batch-command")
_WRITE_TREE: Final = ("mktree", "-z", "--batch")
_WRITE_COMMIT: Final = ("hash-object", "-t", "commit", "-w", "--no-filters", "--stdin-paths")
_WRITE_BLOB: Final = ("hash-object", "-t", "blob", "-w", "--no-filters", "--stdin-paths")
MOST_TREES: Final = 1 << 14  # that are kept; a tree has some twenty entries
NEAR: Final = 64  # commits that are looked at one by one; git itself is quicker with more
_FACTS: Final = 3  # words of an answer: name, type, size; one about what is missing has others

Value = TypeVar("Value")


class GitObject(NamedTuple):
    """What git says of an object; *content* only where it was asked for."""

    name: str
    type: str
    size: int
    content: bytes = b""


class TreeEntry(NamedTuple):
    """One entry of one tree object."""

    mode: str
    name: str
    object: str


TREE_MODE: Final = "040000"
REPOSITORY_MODE: Final = "160000"  # of a submodule, whose commit is not here


def find_objects(common: Path, names: Sequence[str]) -> list[GitObject | None]:
    """Return type and size of each of *names*, which are hashes or whatever git takes for one."""
    return _ask(common, "info", names)


def read_objects(common: Path, names: Sequence[str]) -> list[GitObject | None]:
    """Return the objects of *names* with their contents."""
    return _ask(common, "contents", names)


def _ask(common: Path, command: str, names: Sequence[str]) -> list[GitObject | None]:
    found: list[GitObject | None] = []
    for requests in _chunks([_request(command, name) for name in names]):
        found += _with_process(common, _READ, partial(_exchange, command, requests))
    return found


def _request(command: str, name: str) -> bytes:
    if "\n" in name or "\0" in name:
        raise GitFailed("cat-file", f"{name!r} is no name of an object")
    return b"%s %s\n" % (command.encode(), encode_git(name))


def _chunks(requests: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield as many of *requests* together as a pipe takes at once."""
    together: list[bytes] = []
    size = 0
    for request in requests:
        if len(request) > select.PIPE_BUF:
            raise GitFailed("cat-file", f"the name of an object has {len(request)} bytes")
        if size + len(request) > select.PIPE_BUF:
            yield together
            together, size = [], 0
        together.append(request)
        size += len(request)
    if together:
        yield together


def _exchange(command: str, requests: list[bytes], process: BatchProcess) -> list[GitObject | None]:
    process.send(b"".join(requests))
    return [_answer(process, command) for _ in requests]


def _answer(process: BatchProcess, command: str) -> GitObject | None:
    words = decode_git(process.line()).split(" ")
    if len(words) != _FACTS or not words[2].isdecimal():
        return None
    size = int(words[2])
    return GitObject(words[0], words[1], size, process.content(size) if command == "contents" else b"")


def _with_process(common: Path, words: tuple[str, ...], act: Callable[[BatchProcess], Value]) -> Value:
    """Return what *act* makes of the process *words* for *common*; one that ended is started again."""
    for _ in range(MOST_KILLED):
        with _OPEN.process_for(common, words) as process:
            try:
                return act(process)
            except BaseException:
                _OPEN.drop(common, words)  # half of an answer may still be to come
                if not process.has_ended:
                    raise
    raise GitFailed(words[0], "it ends again and again before it has answered")


class _OpenProcesses:
    """The processes that stay, by the repository that each reads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: OrderedDict[tuple[Path, tuple[str, ...]], BatchProcess] = OrderedDict()
        self._inherited: list[object] = []

    @contextmanager
    def process_for(self, common: Path, words: tuple[str, ...]) -> Iterator[BatchProcess]:
        key = (common, words)
        with self._lock:
            if key not in self._open:
                while len(self._open) >= MOST_OPEN:
                    self._open.popitem(last=False)[1].close()
                self._open[key] = BatchProcess(*words, cwd=common, environment={"GIT_DIR": str(common)})
            self._open.move_to_end(key)
            yield self._open[key]

    def drop(self, common: Path, words: tuple[str, ...]) -> None:
        if process := self._open.pop((common, words), None):
            process.close()

    def close(self) -> None:
        with self._lock:
            for key in list(self._open):
                self.drop(*key)

    def forget(self) -> None:
        """Leave the processes to the process that we are a copy of; none of their descriptors is closed."""
        self._lock = threading.Lock()
        self._inherited.append(self._open)
        self._open = OrderedDict()


_OPEN: Final = _OpenProcesses()
os.register_at_fork(after_in_child=_OPEN.forget)


@atexit.register
def close_readers() -> None:
    """End the processes that stay; the next question starts another."""
    _OPEN.close()


@lru_cache(1 << 13)
def parents_of(common: Path, commit: str) -> tuple[str, ...] | None:
    """Return the parents of *commit*, by its hash; None where there is no such commit."""
    found = read_commit(common, commit)
    return None if found is None else found.parents


def is_near_ancestor(common: Path, ancestor: str, tip: str) -> bool | None:
    """Return whether *ancestor* is reachable from *tip*; None where that takes more than a few commits."""
    seen, level = {tip}, [tip]
    while level and len(seen) <= NEAR:
        if ancestor in seen:
            return True
        families = [parents_of(common, commit) for commit in level]
        if None in families:  # the end of a shallow clone, or damage: git knows more about either
            return None
        # Each once: lines that part and meet again at every merge would double what is looked at each time.
        level = [
            *dict.fromkeys(parent for family in families for parent in family or () if parent not in seen)
        ]
        seen.update(level)
    return ancestor in seen or (False if not level else None)


class CommitObject(NamedTuple):
    """What a commit says: its headers in order, and its message."""

    name: str
    headers: tuple[tuple[str, str], ...]
    message: str

    @property
    def parents(self) -> tuple[str, ...]:
        return tuple(value for key, value in self.headers if key == "parent")

    @property
    def is_plain(self) -> bool:
        """Return whether git would show its message as it stands: in UTF-8, and to its end."""
        return not self.header("encoding") and "\0" not in self.message

    def header(self, key: str) -> str:
        """Return the first value of *key*; empty where there is none."""
        return next((value for name, value in self.headers if name == key), "")


def read_commit(common: Path, commit: str) -> CommitObject | None:
    """Return the commit of this hash, or None."""
    (found,) = read_objects(common, [commit])
    if found is None or found.type != "commit":
        return None
    head, _, message = decode_git(found.content).partition("\n\n")
    lines = [line for line in head.split("\n") if not line.startswith(" ")]  # else it goes on, as a signature
    pairs = (line.partition(" ") for line in lines)
    return CommitObject(found.name, tuple((key, value) for key, _, value in pairs), message)


def read_trees(common: Path, trees: Iterable[str]) -> dict[str, tuple[TreeEntry, ...]]:
    """Return what is directly in each of *trees*, by their hashes."""
    wanted = list(dict.fromkeys(trees))
    known = {tree: entries for tree in wanted if (entries := _TREES.get((common, tree))) is not None}
    missing = [tree for tree in wanted if tree not in known]
    for tree, found in zip(missing, read_objects(common, missing), strict=True):
        if found is None or found.type != "tree":
            raise GitFailed("cat-file", f"there is no tree {tree}")
        known[tree] = _TREES.put((common, tree), tuple(_entries(found.content, len(tree) // 2)))
    return known


def write_tree(common: Path, entries: Iterable[TreeEntry]) -> str:
    """Write the tree that has just *entries*, whose objects are there, and return its hash."""
    lines = "".join(f"{entry.mode} {_type_of(entry)} {entry.object}\t{entry.name}\0" for entry in entries)

    def act(process: BatchProcess) -> str:
        process.send(encode_git(f"{lines}\0"))
        return decode_git(process.line())

    return _with_process(common, _WRITE_TREE, act)


def write_blob(common: Path, content: bytes) -> str:
    """Write the blob that is just *content*, and return its hash."""
    return _write_object(common, _WRITE_BLOB, content)


def write_commit(common: Path, content: bytes) -> str:
    """Write the commit that is just *content*, and return its hash; git refuses what is none."""
    return _write_object(common, _WRITE_COMMIT, content)


def _write_object(common: Path, words: tuple[str, ...], content: bytes) -> str:
    with NamedTemporaryFile(prefix="liza-") as file:
        file.write(content)
        file.flush()

        def act(process: BatchProcess) -> str:
            process.send(f"{file.name}\n".encode())
            return decode_git(process.line())

        return _with_process(common, words, act)


def _type_of(entry: TreeEntry) -> str:
    return {TREE_MODE: "tree", REPOSITORY_MODE: "commit"}.get(entry.mode, "blob")


def _entries(content: bytes, width: int) -> Iterator[TreeEntry]:
    at = 0
    while at < len(content):
        end = content.index(b"\0", at)
        mode, _, name = content[at:end].partition(b" ")
        at = end + 1 + width
        yield TreeEntry(_canonical(int(mode, 8)), decode_git(name), content[end + 1 : at].hex())


def _canonical(mode: int) -> str:
    """Return *mode* as git lists it, whatever bits a tree of another program has."""
    if stat.S_ISREG(mode):
        return "100755" if mode & stat.S_IXUSR else "100644"
    if stat.S_ISLNK(mode):
        return "120000"
    return TREE_MODE if stat.S_ISDIR(mode) else REPOSITORY_MODE


class _KnownTrees:
    """Trees that were read, the latest of them: they never change."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[Path, str], tuple[TreeEntry, ...]] = OrderedDict()

    def get(self, key: tuple[Path, str]) -> tuple[TreeEntry, ...] | None:
        return self._known.get(key)

    def put(self, key: tuple[Path, str], entries: tuple[TreeEntry, ...]) -> tuple[TreeEntry, ...]:
        self._known[key] = entries
        while len(self._known) > MOST_TREES:
            self._known.popitem(last=False)
        return entries


_TREES: Final = _KnownTrees()


def walk_tree(common: Path, tree: str) -> dict[str, tuple[str, str]]:
    """Return mode and hash of every path below *tree*, in git's order; trees themselves are not listed."""
    folders: dict[str, tuple[TreeEntry, ...]] = {}
    level = [tree]
    while level := [one for one in dict.fromkeys(level) if one not in folders]:
        folders |= read_trees(common, level)
        level = [entry.object for one in level for entry in folders[one] if entry.mode == TREE_MODE]
    found: dict[str, tuple[str, str]] = {}
    waiting = [("", iter(folders[tree]))]
    while waiting:
        inside, entries = waiting[-1]
        entry = next(entries, None)
        if entry is None:
            waiting.pop()
        elif entry.mode == TREE_MODE:
            waiting.append((f"{inside}{entry.name}/", iter(folders[entry.object])))
        else:
            found[inside + entry.name] = (entry.mode, entry.object)
    return found


def tree_differences(common: Path, old: str, new: str) -> dict[str, tuple[str, str] | None]:
    """Return mode and hash of every path that the tree *new* has otherwise than *old*; None where it is gone.

    Equal folders are not looked into. Raise ValueError for a tree that has a name twice.
    """
    found: dict[str, tuple[str, str] | None] = {}
    waiting: list[tuple[str, str | None, str | None]] = [("", old, new)]
    while waiting:
        inside, old_folder, new_folder = waiting.pop()
        before, after = _by_name(common, old_folder), _by_name(common, new_folder)
        for name in before.keys() | after.keys():
            was, now = before.get(name), after.get(name)
            if was == now:
                continue
            if was is not None and was.mode != TREE_MODE:
                found[inside + name] = None
            if now is not None and now.mode != TREE_MODE:
                found[inside + name] = (now.mode, now.object)
            if TREE_MODE in (was and was.mode, now and now.mode):
                waiting.append((f"{inside}{name}/", _folder_of(was), _folder_of(now)))
    return found


def _folder_of(entry: TreeEntry | None) -> str | None:
    return entry.object if entry and entry.mode == TREE_MODE else None


def _by_name(common: Path, tree: str | None) -> dict[str, TreeEntry]:
    entries = read_trees(common, [tree])[tree] if tree else ()
    named = {entry.name: entry for entry in entries}
    if len(named) != len(entries):
        raise ValueError(tree)
    return named
