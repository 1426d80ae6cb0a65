"""Ideas, results and baseline on disk: read with a sentence for what is wrong, written whole and masked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from liza.domain.ideas import (
    RESULTS,
    ROLE_FILES,
    SUMMARY,
    Idea,
    IdeaSummary,
    ResultsFile,
    ScoreColumn,
    ideas_of_files,
    round_name,
    score_in_file,
    split_ideas,
    summary_text,
)
from liza.errors import DiskTrouble, LizaError, UsageError
from liza.gates.score import read_results_file
from liza.system.files import environment_mask, link_new, overwrite

COMPLETED: Final = "completed"  # where the file of an idea goes that was tried
LARGEST: Final = 16 << 20  # bytes of a file of ideas or results


def read_ideas(path: Path) -> tuple[Idea, ...]:
    """Return the ideas of a file, or of the files of a directory."""
    if path.is_dir():
        files = [one for one in path.iterdir() if one.is_file() and not _is_of_an_editor(one.name)]
        return ideas_of_files({str(one): _read_text(one) for one in files}, str(path))
    return split_ideas(_read_text(path), str(path))


def _is_of_an_editor(name: str) -> bool:
    """Return whether a file is hidden, or what an editor keeps of an older version."""
    return name.startswith((".", "#")) or name.endswith(("~", ".bak"))


def archive_idea(idea: Idea, run: str) -> Path:
    """Move the file of an idea that was tried to `completed`; one of that name there is left alone."""
    path = Path(idea.source)
    folder = path.parent / COMPLETED
    folder.mkdir(exist_ok=True)
    for target in (folder / path.name, folder / f"{run}_{path.name}"):
        try:
            link_new(path, target)
        except FileExistsError:
            continue
        except OSError as error:
            raise DiskTrouble(f"move {path} to {target}", error) from error
        return target
    raise LizaError(f"{path} cannot be moved: {folder} has one of its name and of its run; rename it")


def _read_text(path: Path) -> str:
    try:
        if path.stat().st_size > LARGEST:
            raise UsageError(
                f"{path} is larger than {LARGEST >> 20} MiB, which no file of ideas is; look at it"
            )
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise UsageError(f"{path} is not there; write your ideas into it, one a paragraph") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is no text: byte {error.start} is no UTF-8; save it as UTF-8") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error


class FileStamp(NamedTuple):
    """Identifies one version of a file; it has the change time, which no program can set back."""

    inode: int
    size: int
    changed: int

    @classmethod
    def of(cls, path: Path) -> FileStamp | None:
        try:
            found = path.stat()
        except OSError:
            return None
        return cls(found.st_ino, found.st_size, found.st_ctime_ns)


def read_results(path: Path, before: FileStamp | None) -> ResultsFile:
    """Return what a sweep wrote; a file that is as it was *before* the sweep is old, and does not count."""
    stamp = FileStamp.of(path)
    if stamp is None:
        return ResultsFile(path.name, None, "was not written")
    if stamp == before:
        return ResultsFile(path.name, None, "is from an earlier run: the sweep did not write it")
    return read_results_file(path)


def refresh_baseline(results: Path, baseline: Path, wanted: ScoreColumn) -> float:
    """Make *results* the baseline, whole or not at all; return its mean. What has no number is refused."""
    found = read_results(results, None)
    if found.data is None:
        raise UsageError(
            f"the baseline stays as it is: {results} {found.why}; run the sweep in your checkout first"
        )
    mean = score_in_file(found.name, found.data, wanted.column, wanted.first_configurations)
    if mean.value is None:
        raise UsageError(f"the baseline stays as it is: {mean.why}")
    _write(baseline, found.data)
    return mean.value


@dataclass(frozen=True)
class IdeaFolder:
    """Where the files of one idea go."""

    path: Path

    def write(self, name: str, text: str) -> None:
        _write(self.path / name, environment_mask().text(text))

    def write_role(self, role: str, prompt: str, answer: str, number: int = 0) -> None:
        """Write what *role* was asked and said, in round *number*, from 0."""
        asked, said = ROLE_FILES[role]
        self.write(round_name(asked, number), prompt)
        self.write(round_name(said, number), answer)

    def keep_results(self, results: ResultsFile) -> str | None:
        """Keep a copy of the results; return its name."""
        if results.data is None:
            return None
        _write(self.path / RESULTS, results.data)
        return RESULTS

    def write_summary(self, summary: IdeaSummary) -> None:
        self.write(SUMMARY, summary_text(summary))


def read_summaries(experiments: Path) -> tuple[IdeaSummary, ...]:
    """Return the summaries of all ideas that were tried; a folder without a whole one is passed over."""
    found = []
    for path in sorted(experiments.glob(f"*/{SUMMARY}")):
        try:
            found.append(IdeaSummary.model_validate_json(path.read_bytes()))
        except (OSError, ValueError):
            continue
    return tuple(found)


def _write(path: Path, content: str | bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        overwrite(path, content)
    except OSError as error:
        raise DiskTrouble(f"write {path}", error) from error
