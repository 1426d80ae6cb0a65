"""The bare repository through which hosts exchange work: submissions, the integration branch, what was saved.

Each submission has a ref of its own, named after the lease that it was made under, so that nobody who comes
back late can overwrite it. The integration branch moves there alone, from the commit that was expected; what
is known of it here is a ref of Liza's own, and the branch that people look at follows that.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from liza.domain.shared_refs import SUBMISSIONS, task_folder, token_digest
from liza.errors import DiskTrouble, GitFailed, RemoteTrouble
from liza.repo.command import ask_git
from liza.repo.merge import Landed, Overtaken
from liza.repo.repository import BRANCHES, Repository
from liza.repo.salvage import SALVAGE_REFS, adopt_salvages, list_salvages
from liza.system.files import hold_lock

if TYPE_CHECKING:
    from collections.abc import Iterable

    from liza.repo.command import GitResult
    from liza.repo.salvage import Salvage

TRACKED: Final = "refs/liza/shared/"  # below it, what this clone knows of the remote's branches
TRIAL: Final = f"{BRANCHES}liza/doctor/trial"  # a ref that is asked about, and never made
LIMIT: Final = 120.0  # seconds; a remote that is slower than that is taken for one that does not answer
LOCK: Final = "liza.fetch.lock"  # in git's directory: two fetches of one clone move the same refs
_MISSING: Final = "couldn't find remote ref"
_REWOUND: Final = "(non-fast-forward)"
_OVERTAKEN: Final = ("stale info", "non-fast-forward", "fetch first")
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://|[^/]+:")
# In the answer of git, lines that say no more than that something is wrong.
_NOISE: Final = (
    "Please make sure",
    "and the repository exists",
    "hint:",
    "To ",
    "Done",
    "!",
    "error: failed",
)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SharedRemote:
    """The remote that the settings name, as *repository* reaches it."""

    repository: Repository
    name: str  # a URL, a path, or the name of a remote of the checkout
    branch: str  # the integration branch

    @property
    def tracked(self) -> str:
        """The ref of this clone that says where the remote's integration branch is."""
        return f"{TRACKED}{self.branch}"

    @property
    def place(self) -> str:
        """Where git finds it: a path is one from the checkout."""
        if _URL.match(self.name) or self._is_configured():
            return self.name
        return str(self.repository.root / Path(self.name).expanduser())

    def _is_configured(self) -> bool:
        return any(key == f"remote.{self.name}.url" for key, _ in self.repository.settings())

    def fetch(self, tasks: Iterable[str] = ()) -> str | None:
        """Bring the integration branch and the submissions of *tasks* here; return where the branch is.

        None where the remote has no such branch.
        """
        tip = self._track(tasks)
        self.follow()
        return tip

    def _track(self, tasks: Iterable[str] = ()) -> str | None:
        known = self.repository.commit_at(self.tracked)
        refs = [f"{BRANCHES}{self.branch}:{self.tracked}"]
        folders = [task_folder(task, self.branch) for task in tasks]
        refs += [f"+{folder}*:{TRACKED}{folder.removeprefix(BRANCHES)}*" for folder in folders]
        answer = self._fetch(refs)
        if answer.code == 0:
            return self.repository.commit_at(self.tracked)
        is_missing = _MISSING in answer.said
        if known and (is_missing or _REWOUND in answer.said):
            raise RemoteTrouble(self.name, f"has lost what was merged: put {self.branch} back at {known}")
        if not is_missing:
            raise self._trouble(answer)
        return None

    def follow(self) -> None:
        """Let the branch that people look at be where the remote's is, unless it has commits of its own."""
        ref, tip = f"{BRANCHES}{self.branch}", self.repository.commit_at(self.tracked)
        here = self.repository.commit_at(ref)
        if tip is None or here == tip or self.repository.checked_out_at(ref):
            return
        if here and not self.repository.contains(tip, here):
            log.warning("%s here has commits that %s has not, and stays as it is", self.branch, self.name)
            return
        self.repository.move_ref(ref, to=tip, expected=here, why=f"follow {self.name}")

    def begin(self, head: str | None) -> str:
        """Make sure that the remote is this repository's and has the integration branch; return its tip.

        Where it has none yet, it begins at *head*, a commit of this clone.
        """
        ref, tip = f"{BRANCHES}{self.branch}", self._track()
        if tip is None and head is not None:
            self._require_same_history(self._any_commit(), head)
            answer = self._push(f"{head}:{ref}", lease=f"{ref}:")
            tip = self._track()
            if tip is None and answer:
                raise self._trouble(answer)
        if tip is None:
            raise RemoteTrouble(self.name, f"has no branch {self.branch}, and here is no commit to begin at")
        self._require_same_history(tip, head)
        self.follow()
        return tip

    def check(self, head: str | None) -> None:
        """Raise where it does not answer, has another history or takes no push; nothing is changed there."""
        self._require_same_history(self._any_commit(), head)
        if head and (answer := self._push(f"{head}:{TRIAL}", dry=True)):
            raise self._trouble(answer)

    def _require_same_history(self, theirs: str | None, ours: str | None) -> None:
        if theirs is None or ours is None or self.repository.ask("merge-base", theirs, ours).code == 0:
            return
        if self.repository.commit_at(self.tracked) == theirs:
            self.repository.delete(self.tracked, expected=theirs)
        raise RemoteTrouble(
            self.name, "has another history than this repository; name the one of this project in `remote`"
        )

    def _any_commit(self) -> str | None:
        """Return a commit of the remote; None where it is empty."""
        answer = self._ask("ls-remote", "--heads", "--end-of-options", self.place)
        if answer.code != 0:
            raise self._trouble(answer)
        first = answer.text.partition("\n")[0].partition("\t")[2]
        if not first:
            return None
        found = f"{TRACKED}first-commit"
        answer = self._fetch([f"+{first}:{found}"])
        if answer.code != 0:
            raise self._trouble(answer)
        commit = self.repository.commit_at(found)
        if commit:
            self.repository.delete(found, expected=commit)
        return commit

    def publish_work(self, task: str, token: str, commit: str) -> None:
        """Let every host have *commit*, which *task* hands in under the lease of *token*; may be repeated."""
        ref = f"{task_folder(task, self.branch)}{token_digest(token)}"
        answer = self._push(f"+{commit}:{ref}")
        if answer is not None:
            raise self._trouble(answer)
        self.repository.git("update-ref", f"{TRACKED}{ref.removeprefix(BRANCHES)}", commit)

    def land_merge(self, sealed: str, *, onto: str) -> Landed | Overtaken:
        """Move the remote's integration branch from *onto* to *sealed*, or return where it is instead."""
        ref = f"{BRANCHES}{self.branch}"
        answer = self._push(f"{sealed}:{ref}", lease=f"{ref}:{onto}")
        if answer is None:
            self.repository.git("update-ref", self.tracked, sealed)
            self.follow()
            return Landed(sealed)
        if not any(word in f"{answer.text}\n{answer.said}" for word in _OVERTAKEN):
            raise self._trouble(answer)
        tip = self.fetch()
        return Landed(sealed) if tip and self.repository.contains(tip, sealed) else Overtaken(tip)

    def retire_work(self, tasks: Iterable[str]) -> None:
        """Delete the submissions of *tasks*, which are over, but those that are not merged whole."""
        answer = self._ask("ls-remote", "--end-of-options", self.place, f"{SUBMISSIONS}*")
        if answer.code != 0:
            raise self._trouble(answer)
        folders = {task_folder(task, self.branch) for task in tasks}
        rows = (line.split("\t") for line in answer.text.splitlines())
        over = {ref: commit for commit, ref in rows if ref[: ref.rindex("/") + 1] in folders}
        merged = [ref for ref, commit in over.items() if self.repository.contains(self.tracked, commit)]
        if not merged:
            return
        refused = self._push(*(f":{ref}" for ref in merged))
        if refused is not None:
            raise self._trouble(refused)
        for ref in merged:
            self.repository.delete(f"{TRACKED}{ref.removeprefix(BRANCHES)}", expected=over[ref])

    def publish_salvages(self) -> None:
        """Let every host have what was saved here; what is there already costs nothing."""
        refs = [f"{saved.commit}:{SALVAGE_REFS}{saved.task}/{saved.commit}" for saved in self._unpublished()]
        if not refs:
            return
        answer = self._push(*refs)
        if answer is not None:
            raise self._trouble(answer)
        self.fetch_salvages()

    def _unpublished(self) -> list[Salvage]:
        known = set(self._salvages_there())
        return [saved for saved in list_salvages(self.repository) if saved.commit not in known]

    def _salvages_there(self) -> dict[str, str]:
        """Return the salvages that this clone knows to be on the remote: their tasks by commit."""
        prefix = f"{TRACKED}salvage/"
        lines = self.repository.git("for-each-ref", "--format=%(objectname) %(refname)", prefix).splitlines()
        rows = (line.split(" ", 1) for line in lines)
        return {commit: ref.removeprefix(prefix).rpartition("/")[0] for commit, ref in rows}

    def fetch_salvages(self) -> None:
        """Bring what was saved on other hosts here, each with the next number of its task."""
        answer = self._fetch([f"+{SALVAGE_REFS}*:{TRACKED}salvage/*"])
        if answer.code != 0:
            raise self._trouble(answer)
        adopt_salvages(self.repository, self._salvages_there())

    def _fetch(self, refs: list[str]) -> GitResult:
        flags = ("--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--refmap=")
        with hold_lock(self.repository.common / LOCK):
            return self._ask("fetch", *flags, "--end-of-options", self.place, *refs)

    def _push(self, *refs: str, lease: str | None = None, dry: bool = False) -> GitResult | None:
        """Push *refs*, or only ask whether one could; return None where that is done, else what git said."""
        flags = [*([f"--force-with-lease={lease}"] if lease else []), *(["--dry-run"] if dry else [])]
        words = ("push", "--porcelain", "--no-verify", *flags, "--end-of-options", self.place, *refs)
        try:
            answer = self._ask(*words)
        except DiskTrouble as error:  # what was written on this side was written before
            raise RemoteTrouble(self.name, "is full; make room there") from error
        return None if answer.code == 0 else answer

    def _ask(self, *words: str) -> GitResult:
        # Liza's git forgets the user's credential helpers; for this remote they count.
        helpers = [value for key, value in self.repository.settings() if key == "credential.helper" and value]
        settings = [word for helper in helpers for word in ("-c", f"credential.helper={helper}")]
        environment = {"GIT_DIR": str(self.repository.common)}
        try:
            return ask_git(*settings, *words, cwd=self.repository.root, environment=environment, limit=LIMIT)
        except GitFailed as error:
            raise RemoteTrouble(self.name, f"did not answer within {LIMIT:g} seconds") from error

    def _trouble(self, answer: GitResult) -> RemoteTrouble:
        lines = [line.strip() for line in f"{answer.said}\n{answer.text}".splitlines()]
        told = [line for line in lines if line and not line.startswith(_NOISE)]
        said = [line.removeprefix("remote:").strip() for line in told if line.startswith("remote:")]
        what = "refuses it" if said or "rejected]" in answer.text else "cannot be reached"
        first = (said or told or ["git does not say why"])[0].removeprefix("liza: ")
        return RemoteTrouble(self.name, f"{what} ({first})")
