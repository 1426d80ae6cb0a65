"""Runs `gh`, GitHub's own program: without prompts and pager, with a limit on each call, failures told apart.

Credentials are gh's: `gh auth login`, or GH_TOKEN. A call that failed for a passing reason is tried again.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from pydantic import TypeAdapter, ValidationError

from liza.domain.printed_text import escape_unsafe
from liza.errors import ForgeFailed
from liza.forges.protocol import TRANSIENT, ForgeProblem
from liza.system.files import LockFile, environment_mask
from liza.system.host import host

T = TypeVar("T")

PROGRAM: Final = "gh"
CREDENTIALS: Final = "!gh auth git-credential"  # what git is told to ask for a login
LIMIT: Final = 60.0  # seconds for one call
WAITS: Final = (1.0, 4.0, 15.0)  # seconds before the second, third and fourth try
LONGEST_LOCK: Final = 300.0  # seconds to wait for whoever else is writing to the forge
_POLL: Final = 0.2  # seconds between two looks at the lock
_LONGEST_SAID: Final = 300  # characters of what gh said that a sentence has

_FAILED_LOGIN: Final = 4  # the exit code of gh where nobody is logged in
_KEPT: Final = frozenset(
    {"GH_TOKEN", "GH_HOST", "GH_CONFIG_DIR", "GH_ENTERPRISE_TOKEN", "GITHUB_TOKEN", "GITHUB_ENTERPRISE_TOKEN"}
)
_DROPPED: Final = ("GH_", "GITHUB_", "GIT_", "CLICOLOR", "DEBUG", "LC_", "LANG")
_ENVIRONMENT: Final = {
    "BROWSER": "true",
    "GH_EDITOR": "true",
    "GH_NO_UPDATE_NOTIFIER": "1",
    "GH_PAGER": "cat",
    "GH_PROMPT_DISABLED": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C.UTF-8",
    "NO_COLOR": "1",
}

# In this order: GitHub answers 403 where a rate limit is used up, and 404 where a token sees too little.
_SIGNS: Final[tuple[tuple[ForgeProblem, re.Pattern[str]], ...]] = tuple(
    (problem, re.compile(pattern, re.IGNORECASE))
    for problem, pattern in (
        (ForgeProblem.LOGIN, r"HTTP 401|Bad credentials|gh auth login|status code: 401"),
        (ForgeProblem.LIMITED, r"rate limit|HTTP 429|abuse detection|status code: 429"),
        (ForgeProblem.FORBIDDEN, r"HTTP 403|not accessible by|SAML|must have .* rights|status code: 403"),
        (ForgeProblem.MISSING, r"HTTP 404|Could not resolve to|status code: 404|no pull requests found"),
        (
            ForgeProblem.INVALID,
            r"HTTP 422|Validation Failed|No commits between|already exists|status code: 422",
        ),
        (
            ForgeProblem.UNREACHABLE,
            r"HTTP 5\d\d|status code: 5\d\d|error connecting|timed? ?out|\bEOF\b|connection re(?:set|fused)",
        ),
    )
)

_SENTENCES: Final[dict[ForgeProblem, str]] = {
    ForgeProblem.LOGIN: "GitHub does not know who asks ({said}); run `gh auth login`, or set GH_TOKEN",
    ForgeProblem.LIMITED: "GitHub's rate limit is used up ({said}); wait until it is over",
    ForgeProblem.FORBIDDEN: (
        "the token of gh may not do that ({said}); let it write issues, contents and pull requests"
    ),
    ForgeProblem.MISSING: (
        "GitHub has no such thing, or the token may not see it ({said}); look at the name of the repository"
    ),
    ForgeProblem.INVALID: "GitHub refuses what it was sent ({said}); mend that, and try again",
    ForgeProblem.UNREACHABLE: "GitHub does not answer ({said}); try again later",
    ForgeProblem.OTHER: "gh failed ({said})",
}


class GhResult(NamedTuple):
    code: int
    output: str
    said: str

    @property
    def problem(self) -> ForgeProblem | None:
        """What went wrong; None where nothing did."""
        if self.code == 0:
            return None
        if self.code == _FAILED_LOGIN:
            return ForgeProblem.LOGIN
        if not self.said.strip():
            return ForgeProblem.UNREACHABLE
        return next((problem for problem, sign in _SIGNS if sign.search(self.said)), ForgeProblem.OTHER)


@dataclass(frozen=True)
class Gh:
    """How gh is called for one repository; *lock* serialises what writes."""

    root: Path
    repository: str | None
    lock: Path
    waits: tuple[float, ...] = WAITS
    limit: float = LIMIT

    def read(self, doing: str, shape: type[T], *words: str) -> T:
        """Return what gh prints as JSON, which has to be a *shape*."""
        return self._again(doing, lambda: self.ask(doing, shape, words))

    def write(self, doing: str, step: Callable[[GhWriter], T]) -> T:
        """Do *step*, which looks whether the write was done and does it if not; the whole is tried again."""
        with self._hold_lock() as descriptor:
            return self._again(doing, lambda: step(GhWriter(self, doing, descriptor)))

    def ask(self, doing: str, shape: type[T], words: tuple[str, ...], descriptor: int | None = None) -> T:
        """Return what gh prints as JSON, without another try."""
        result = self.run(words, descriptor=descriptor)
        require_success(doing, result)
        try:
            return TypeAdapter(shape).validate_json(result.output)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            is_json = first["type"] != "json_invalid"
            place = ".".join(map(str, first["loc"])) or "all of it"
            said = f"what it said is no answer to that: {place}" if is_json else "what it said is no JSON"
            why = _SENTENCES[ForgeProblem.UNREACHABLE].format(said=said)
            raise ForgeFailed(doing, why, ForgeProblem.UNREACHABLE) from error

    def _again(self, doing: str, step: Callable[[], T]) -> T:
        """Do *step*, again after each of the waits while what stands in the way is over by itself."""
        waits = iter(self.waits)
        while True:
            try:
                return step()
            except ForgeFailed as error:
                wait = next(waits, None)
                if error.problem not in TRANSIENT:
                    raise
                if wait is None:
                    said = f"{_reason(error)} (tried {len(self.waits) + 1} times)"
                    raise ForgeFailed(doing, said, error.problem) from error
            time.sleep(wait)

    def run(self, words: tuple[str, ...], *, stdin: str = "", descriptor: int | None = None) -> GhResult:
        """Run gh once; it inherits *descriptor*, and with it the lock, for as long as it lives."""
        program = shutil.which(PROGRAM)
        if program is None:
            why = "gh is not on the PATH; install it, and run `gh auth login`"
            raise ForgeFailed("ask GitHub", why, ForgeProblem.OTHER)
        try:
            process = subprocess.Popen(
                [*host().parent_death_prefix(), program, *words, *self._repository_words()],
                cwd=self.root,
                env=_inherited_environment() | _ENVIRONMENT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                encoding="utf-8",
                errors="replace",
                process_group=0,
                pass_fds=() if descriptor is None else (descriptor,),
            )
        except OSError as error:
            why = f"gh cannot be started: {error.strerror or error}"
            raise ForgeFailed("ask GitHub", why, ForgeProblem.OTHER) from error
        with process:
            try:
                output, said = process.communicate(stdin, timeout=self.limit)
            except BaseException as error:
                _kill_group(process)
                if isinstance(error, subprocess.TimeoutExpired):
                    return GhResult(1, "", f"timed out after {self.limit:g} seconds")
                raise
        return GhResult(process.returncode, output, said)

    def _repository_words(self) -> tuple[str, ...]:
        # Not by GH_REPO: `gh pr create` wants a remote of GitHub's beside it.
        return ("--repo", self.repository) if self.repository else ()

    @contextmanager
    def _hold_lock(self) -> Iterator[int]:
        """Hold the lock of the forge; a gh that outlives us still holds it, so nobody repeats its write."""
        self.lock.parent.mkdir(parents=True, exist_ok=True)
        with closing(LockFile(self.lock, take=_take_patiently)) as file:
            yield file.lock()


class GhWriter(NamedTuple):
    """Calls of gh under the lock."""

    gh: Gh
    doing: str
    descriptor: int

    def read(self, shape: type[T], *words: str) -> T:
        return self.gh.ask(self.doing, shape, words, self.descriptor)

    def run(self, *words: str, stdin: str = "") -> GhResult:
        return self.gh.run(words, stdin=stdin, descriptor=self.descriptor)

    def do(self, *words: str, stdin: str = "") -> str:
        result = self.run(*words, stdin=stdin)
        require_success(self.doing, result)
        return result.output


def require_success(doing: str, result: GhResult) -> None:
    """Raise the sentence for what went wrong."""
    if (problem := result.problem) is not None:
        raise ForgeFailed(doing, _SENTENCES[problem].format(said=_shown(result.said)), problem)


def _shown(said: str) -> str:
    line = " ".join(environment_mask().text(said).split()) or "it said nothing"
    return escape_unsafe(line[:_LONGEST_SAID])


def _reason(error: ForgeFailed) -> str:
    return str(error).partition(": ")[2]


def _inherited_environment() -> dict[str, str]:
    return {
        name: value for name, value in os.environ.items() if name in _KEPT or not name.startswith(_DROPPED)
    }


def _kill_group(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _take_patiently(descriptor: int) -> None:
    deadline = time.monotonic() + LONGEST_LOCK
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                why = f"another process has been writing to the forge for {LONGEST_LOCK:g} seconds; end it"
                raise ForgeFailed("write to the forge", why, ForgeProblem.OTHER) from error
        time.sleep(_POLL)
