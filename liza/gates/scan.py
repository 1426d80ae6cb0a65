"""The scan gate: secrets, forbidden commands and sensitive paths in what an agent made or said."""

from __future__ import annotations

import re
from collections.abc import Iterator
from posixpath import normpath
from typing import Final, Literal

from liza.domain.record import Record
from liza.domain.verdicts import Feedback, Outcome
from liza.gates.context import GateContext
from liza.gates.files import SENSITIVE, is_script, suffix_of
from liza.gates.finding import ONE_COMMIT, Finding, blocker, concern, has_blocker, most_important, passed
from liza.gates.forbidden import forbidden_command_in, removes_directories
from liza.gates.patterns import matches
from liza.gates.secrets import secrets_in
from liza.repo.diff import DiffEntry, DiffLine
from liza.repo.objects import blob_contents

LARGEST_BINARY: Final = 1 << 20  # bytes of a file that is no text in which we look for words all the same
_WORDS: Final = re.compile(rb"[\x20-\x7e\t]{8,}")
_LOCK: Final = re.compile(r"(?:^|/)(?:[^/]*[.-]lock(?:\.json|\.yaml)?|package-lock\.json|go\.sum)$")
# A program that hands a line to a shell.
_SHELLING: Final = re.compile(
    r"\bsystem\s*\(|subprocess|Popen|child_process|execSync|\bexec\(|\bspawn|sh -c|shell=True"
)
# How a line begins that runs nothing, by the kind of file; in a shell `//bin/x` is a program.
_COMMENTS: Final = {
    **dict.fromkeys(("sql", "psql", "ddl"), re.compile(r"^\s*--")),
    **dict.fromkeys(("bat", "cmd"), re.compile(r"^\s*(?:@?REM\b|::)", re.IGNORECASE)),
    **dict.fromkeys(
        [
            "js",
            "jsx",
            "ts",
            "tsx",
            "mjs",
            "cjs",
            "go",
            "rs",
            "java",
            "kt",
            "scala",
            "c",
            "cc",
            "cpp",
            "h",
            "swift",
            "php",
        ],
        re.compile(r"^\s*//"),
    ),
}
_COMMENT: Final = re.compile(r"^\s*#(?!!)")
# It only prints, if nothing of it is run: no other command behind it, and none inside of it.
_ECHO: Final = re.compile(r"^\s*@?echo\b(?P<rest>.*)")
_QUOTED: Final = re.compile(r"'[^']*'|\"(?:[^\"\\`$]|\\.|\$(?!\())*\"")
_RUNS: Final = re.compile(r"[;|&`\n]|\$\(|<\(|>\(")
_FILTER: Final = re.compile(r"\b(?:filter|merge|diff)=")
_HARMLESS_ATTRIBUTES: Final = re.compile(r"(?:^|/)\.gitattributes$")


class ScanOptions(Record):
    secrets: bool = True
    commands: bool = True
    paths: Literal["revise", "ask", "record", "ignore"] = "revise"


def judge(options: ScanOptions, case: GateContext) -> Finding:
    """Look at added lines, commit messages, the agent's words and commands, and the touched paths."""
    parts = {
        "a secret is in the work": list(_secret_findings(case)) if options.secrets else [],
        "a forbidden command is in the work": list(_command_findings(case)) if options.commands else [],
        "a sensitive file is touched": list(_path_findings(options, case)),
    }
    feedback = most_important([one for found in parts.values() for one in found])
    bad = [reason for reason, found in parts.items() if has_blocker(found)]
    if not bad:
        return passed("no secret, forbidden command or sensitive file is in the work", feedback)
    asks = options.paths == "ask" and bad == ["a sensitive file is touched"]
    return Finding(Outcome.ASK if asks else Outcome.REVISE, bad[0], feedback)


def _secret_findings(case: GateContext) -> Iterator[Feedback]:
    yield from _secrets_in_lines(case, case.diff, "")
    yield from _secrets_in_metadata(case)
    yield from _secrets_in_history(case)
    kinds = {kind for line in case.said.text.splitlines() for kind in secrets_in(line)}
    for kind in sorted(kinds):
        yield concern(f"the agent printed a secret ({kind}); whoever owns it should replace it")


def _secrets_in_metadata(case: GateContext) -> Iterator[Feedback]:
    """Look at what is merged beside the lines of files: messages, authors and paths."""
    for change in case.commits:
        for what, text in (("message", change.message), ("author", change.people)):
            for kind in sorted({kind for line in text.splitlines() for kind in secrets_in(line)}):
                where = f"the {what} of the commit {change.commit[:12]}"
                yield blocker(f"{where} has a secret ({kind}); write it anew", mend=ONE_COMMIT)
    now = {entry.path for entry in case.diff}
    gone = [past.entry for past in case.history if past.entry.path not in now]
    for entries, mend in ((case.diff, ""), (gone, ONE_COMMIT)):
        # The path itself is not repeated: it has the secret.
        parts = {part for entry in entries for part in entry.path.split("/")}
        for kind in sorted({kind for part in parts for kind in secrets_in(part)}):
            message = f"the name of a file has a secret ({kind}); rename it, in every commit"
            yield blocker(message, mend=mend)


def _secrets_in_lines(case: GateContext, entries: tuple[DiffEntry, ...], where: str) -> Iterator[Feedback]:
    for entry in entries:
        lines = entry.added if not entry.is_binary else _strings(case, entry)
        for line in lines:
            for kind in secrets_in(line.text):
                if kind != "Password" or not _LOCK.search(entry.path):
                    message = f"a secret ({kind}) is added here{where}; remove it, and have it replaced"
                    yield blocker(message, entry.path, None if entry.is_binary else line.number)


def _strings(case: GateContext, entry: DiffEntry) -> tuple[DiffLine, ...]:
    """Return the words inside a file that is no text: a zero byte must not hide the rest.

    Shells leave such bytes out, so that the words are also those which stand on both sides of one.
    """
    if not entry.is_there:
        return ()
    data = blob_contents(case.repository, [entry.blob]).get(entry.blob, b"")[:LARGEST_BINARY]
    found = dict.fromkeys([*_WORDS.findall(data), *_WORDS.findall(data.replace(b"\0", b""))])
    return tuple(DiffLine(0, words.decode()) for words in found)


def _secrets_in_history(case: GateContext) -> Iterator[Feedback]:
    """Look into each commit: what a later one removes is still merged with the history."""
    now = {(entry.path, line.text) for entry in case.diff for line in entry.added}
    for past in case.history:
        entry = past.entry
        lines = entry.added if not entry.is_binary else _strings(case, entry)
        gone = (line.text for line in lines if (entry.path, line.text) not in now)
        if any(True for line in gone for _ in secrets_in(line)):
            yield blocker(f"a secret was added here {past.where}", entry.path, mend=ONE_COMMIT)


def _command_findings(case: GateContext) -> Iterator[Feedback]:
    tracked = {path.split("/")[0] for path in case.base_files}
    for entry in case.diff:
        for line in entry.added if not entry.is_binary else _strings(case, entry):
            if not _is_command(case, entry, line.text):
                continue
            if bad := forbidden_command_in(line.text, tracked):
                yield blocker(
                    f"{bad} is forbidden here; find another way, or say why you are blocked",
                    entry.path,
                    line.number or None,
                )
            elif removes_directories(line.text):
                message = "this removes whole directories; look at which"
                yield concern(message, entry.path, line.number or None)
    for command in case.said.commands:
        if bad := forbidden_command_in(command, tracked):
            yield blocker(f"the agent ran what is forbidden ({bad})")


def _is_command(case: GateContext, entry: DiffEntry, line: str) -> bool:
    if _COMMENTS.get(suffix_of(entry.path), _COMMENT).match(line) or _is_echo_only(line):
        return False
    return is_script(entry.path) or bool(_SHELLING.search(line)) or _is_shell_script(case, entry)


def _is_echo_only(line: str) -> bool:
    echo = _ECHO.match(line)
    return echo is not None and not _RUNS.search(_QUOTED.sub("", echo["rest"]))


def _is_shell_script(case: GateContext, entry: DiffEntry) -> bool:
    """Say whether a file without a telling name begins as a script of a shell."""
    if "." in entry.path.rsplit("/", 1)[-1]:
        return False
    if entry.is_binary:
        start = next((line.text for line in _strings(case, entry)), "")[:100]
    else:
        start = case.texts.get(entry.blob, "")[:100].split("\n", 1)[0]
    return start.startswith("#!") and bool(re.search(r"\b(?:ba|da|z|k)?sh\b", start))


def _path_findings(options: ScanOptions, case: GateContext) -> Iterator[Feedback]:
    if options.paths == "ignore":
        return
    note = concern if options.paths == "record" else blocker
    for entry in case.diff:
        for path in entry.paths:
            if (
                _is_sensitive(case, path)
                and not _is_named_in_scope(case, path)
                and not _is_harmless_attributes(entry)
            ):
                message = "this decides what runs or who may do what, and the scope does not name it"
                yield note(f"{message}; undo the change, or say why you are blocked", path)
    touched = {path for entry in case.diff for path in entry.paths}
    for past in case.history:
        path = past.entry.path
        if path not in touched and _is_sensitive(case, path) and not _is_named_in_scope(case, path):
            message = f"this decides what runs or who may do what, and was added {past.where}"
            yield note(message, path, mend=ONE_COMMIT)


def _is_sensitive(case: GateContext, path: str) -> bool:
    return bool(SENSITIVE.search(path)) or path == normpath(case.config.workflow)


def _is_named_in_scope(case: GateContext, path: str) -> bool:
    """Return whether the scope names *path* or a folder for such files; a folder around it is no name."""
    return case.bounds.names(path) or any(
        matches(pattern, path) and (SENSITIVE.search(pattern) or SENSITIVE.search(f"{pattern}/x"))
        for pattern in case.bounds.inside
    )


def _is_harmless_attributes(entry: DiffEntry) -> bool:
    """Return whether the change of attributes names no filter, merge or diff driver, and so runs nothing."""
    if not _HARMLESS_ATTRIBUTES.search(entry.path):
        return False
    return not any(_FILTER.search(line.text) for line in (*entry.added, *entry.removed))
