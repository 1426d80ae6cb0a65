"""The scan gate: secrets, forbidden commands and sensitive paths in what an agent made or said."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator
from functools import cache
from posixpath import normpath
from typing import TYPE_CHECKING, Final, Literal

from liza.domain.model import Feedback, Outcome
from liza.domain.record import Record
from liza.gates.context import (
    ONE_COMMIT,
    Finding,
    GateContext,
    blocker,
    concern,
    has_blocker,
    let_pass,
    most_important,
)
from liza.gates.files import SENSITIVE, is_docs, is_for_tests, is_script, matches, suffix_of
from liza.repo.repository import DiffEntry, DiffLine, blob_contents

if TYPE_CHECKING:
    from detect_secrets.plugins.base import RegexBasedDetector
    from detect_secrets.plugins.high_entropy_strings import HighEntropyStringsPlugin


# Commands that nobody runs or writes into a script unattended, as one table.

_RM: Final = re.compile(r"\brm\s+(?P<words>(?:-{1,2}[\w-]+\s+)+(?P<rest>[^;&|\n]*))")

_DOWNLOAD: Final = r"(?:curl|wget)\b"
# The rest of a command, quoted signs included, and further commands that only pass on what they read.
_STAGES: Final = r"(?:[^|;&\"']|\"[^\"]*\"|'[^']*'|>&\d|&>|\|(?!\|))*"
_PATH_BEFORE: Final = r"(?:[\w.~/-]*/)?"
# A shell, however it is named and whatever starts it, or a language that is given nothing but its input.
_INTO_SHELL: Final = (
    rf"\|\s*(?:{_PATH_BEFORE}(?:sudo|doas|env|exec|nohup|time|command)\s+(?:-\S+\s+|\w+=\S*\s+)*)*{_PATH_BEFORE}"
    r"(?:(?:ba|z|da|k|a|fi)?sh\b(?![.\w-])|(?:python[\d.]*|perl|ruby|node|php)\s*(?:-\s*)?(?=$|[;&|)\"'`]))"
)
_OUTPUT_OF: Final = r"[\"']?(?:<\(|\$\(|`)\s*"

# What the name of each is in a sentence, and how it looks.
FORBIDDEN: Final[dict[str, re.Pattern[str]]] = {
    name: re.compile(text, re.IGNORECASE)
    for name, text in {
        "DROP TABLE": r"\bDROP\s+TABLE\b",
        "DROP DATABASE": r"\bDROP\s+(?:DATABASE|SCHEMA)\b",
        "DELETE of every row": r"\bDELETE\s+FROM\b.*\bWHERE\s+(?:1\s*=\s*1|true)\b"
        r"|\bDELETE\s+FROM\s+[\w.\"`]+\s*;",
        "TRUNCATE": r"\bTRUNCATE\s+TABLE\b",
        "a download piped into a shell": rf"\b{_DOWNLOAD}{_STAGES}{_INTO_SHELL}"
        rf"|\b(?:ba|z|da|k|a)?sh\s+(?:-\w+\s+)*{_OUTPUT_OF}{_DOWNLOAD}"
        rf"|(?:\beval|\bsource|(?:^|[;&|\s])\.)\s+{_OUTPUT_OF}{_DOWNLOAD}",
        "a force push": r"\bgit\b.*\bpush\b.*(?:--force|\s-f\b|\s\+\w)",
        "git push": r"\bgit\b(?:\s+-\S+(?:\s+\S+)?)*?\s+push\b",
        "git config": r"\bgit\s+config\b(?!\s+(?:--get|--list|-l\b))",
        "chmod 777": r"\bchmod\s+(?:-\w+\s+)*(?:0?777|a\+rwx)\b",
        "a fork bomb": r":\(\)\s*\{\s*:\s*\|\s*:\s*&\s*\}",
        "writing to a disk": r"\bmkfs(?:\.\w+)?\s|\bdd\b.*\bof=/dev/|>\s*/dev/(?:sd|nvme|hd)\w",
        "a decoded script piped into a shell": rf"\bbase64\s+(?:-d|--decode|-D)\b{_STAGES}{_INTO_SHELL}",
        "a shell over the network": r"/dev/(?:tcp|udp)/|\bnc\b.*\s-e\b",
        "history removed": r"\bgit\s+(?:filter-branch|reflog\s+expire|update-ref\s+-d)\b",
    }.items()
}

_HARMLESS: Final = re.compile(r"[\w.+/@-]+")


def forbidden_command_in(line: str, tracked: Collection[str] = ()) -> str | None:
    """Return what on *line* is forbidden; *tracked* are the names at the top of the repository."""
    for name, pattern in FORBIDDEN.items():
        if pattern.search(line):
            return name
    match = _RM.search(line)
    if match and _is_recursive(match["words"]) and not _removes_products(match["rest"], tracked):
        return "rm -rf"
    return None


def removes_directories(line: str) -> bool:
    """Return whether *line* removes whole directories, of whatever kind."""
    match = _RM.search(line)
    return match is not None and _is_recursive(match["words"])


def _is_recursive(words: str) -> bool:
    options = [word for word in words.split() if word.startswith("-")]
    short = "".join(word[1:] for word in options if not word.startswith("--"))
    return "r" in short.lower() or "--recursive" in options


def _removes_products(rest: str, tracked: Collection[str]) -> bool:
    """Return whether only named things inside are removed, and none that the repository has."""
    try:
        targets = [word for word in shlex.split(rest, comments=True) if not word.startswith("-")]
    except ValueError:
        return False
    return bool(targets) and all(_is_product(target, tracked) for target in targets)


def _is_product(target: str, tracked: Collection[str]) -> bool:
    plain = target.replace("*", "x").removeprefix("./").rstrip("/")
    if not plain or target in ("*", "./*", ".") or not _HARMLESS.fullmatch(plain):
        return False
    parts = plain.split("/")
    return not target.startswith("/") and ".." not in parts and parts[0] not in {*tracked, ".git", ".liza"}


# Ways to let somebody in who is not allowed to, as one table: what is written to get around a check.

_CHECK: Final = r"\w*(?:auth(?!or(?![iy]))|permission|access|login|logged_?in|admin|owner|csrf|allowed)\w*"
_TRUE: Final = r"(?:true|1|yes|on)\b"
_FALSE: Final = r"(?:false|0|no|off)\b"

# What the name of each is in a sentence, and how it looks.
BYPASSES: Final[dict[str, re.Pattern[str]]] = {
    name: re.compile("|".join(ways), re.IGNORECASE)
    for name, ways in {
        "a check that is always true": (
            rf"\b(?:if|return|unless)\b.*\b{_CHECK}\b.*(?:\bor\s+true\b|\|\|\s*{_TRUE})",
            rf"\b(?:if|return|unless)\b\W*(?:true\s+or\b|true\s*\|\|).*\b{_CHECK}",
            rf"\bdef\s+(?:is|has|can|may|check)_{_CHECK}\(.*\).*:\s*return\s+true\b",
        ),
        "a switch that skips a check": (
            rf"\b(?:skip|disable|bypass|ignore)_{_CHECK}[\"']?\s*[:=]\s*{_TRUE}",
            rf"\b{_CHECK}_(?:required|enabled)[\"']?\s*[:=]\s*{_FALSE}",
        ),
        "everybody is let in": (
            r"\bpermission_classes\s*=\s*[\[(]\s*(?:\w*\.?AllowAny\b|[\])])",
            r"\bauthentication_classes\s*=\s*[\[(]\s*[\])]",
            r"\.permitAll\(\)|\[AllowAnonymous\]|\bskip_before_action\s+:\w*auth",
        ),
        "forged requests are let in": (
            r"@csrf_exempt\b|\bcsrf\(\)\.disable\(\)|\bskip_forgery_protection\b",
        ),
        "a token whose signature nobody checks": (
            r"\bverify_signature[\"']?\s*[:=]\s*false\b",
            r"\balgorithms?[\"']?\s*[:=]\s*\[?\s*[\"']none[\"']",
            r"\bjwt\.decode\(.*\bverify\s*=\s*false\b",
        ),
        "rights for everybody": (
            r"\bGRANT\s+ALL\b|\bNOPASSWD:\s*ALL\b|\bDISABLE\s+ROW\s+LEVEL\s+SECURITY\b",
        ),
    }.items()
}
# What keeps people out; a line with it that only goes away lets them in.
GUARD: Final = re.compile(
    r"^\s*@\w*(?:login_required|permission_required|requires_auth\w*|PreAuthorize|RolesAllowed)\b"
    r"|^\s*\[Authorize\b|^\s*before_action\s+:\w*auth|\bcheck_(?:permission|access)\w*\(",
)


def bypass_in(line: str) -> str | None:
    """Return how *line* gets around a check of who may do what, where it does."""
    return next((name for name, pattern in BYPASSES.items() if pattern.search(line)), None)


def is_guard(line: str) -> bool:
    """Return whether *line* keeps people out."""
    return bool(GUARD.search(line))


# Secrets in text, found by `detect-secrets`; what is found is never repeated, only where and of which kind.
#
# Its detectors of known tokens are used as they are, and two that guess (a password by its name, a random
# string by its entropy) only where both agree: either alone cries at lock files, hashes and fixtures.
# Nothing is verified over the network.

# Tokens that came after the last release of the library.
_EXTRA_TOKENS: Final = {
    "Anthropic Token": re.compile(r"(?<![\w-])sk-ant-[\w-]{24,}"),
    "OpenAI Token": re.compile(r"(?<![\w-])sk-(?:proj|svcacct|admin)-[\w-]{40,}"),
    "GitHub Token": re.compile(r"(?<![\w-])github_pat_\w{40,}"),
    "Google API Key": re.compile(r"(?<![\w-])AIza[\w-]{35}(?![\w-])"),
    "Hugging Face Token": re.compile(r"(?<![\w-])hf_[A-Za-z0-9]{34,}"),
    "Private Key": re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----"),
}
# A line without any of these has none of the tokens: looking for fixed letters is fast, patterns are not.
_HINTS: Final = re.compile(
    r"A3T|ABIA|ACCA|AKIA|ASIA|(?i:aws)|AccountKey|gh[pousr]_|gl[a-z]+-|GR1348941|github_pat_|-us\d|_authToken|sk-"
    r"|PRIVATE KEY|PuTTY|pypi-|SG\.|(?i:xox)|hooks\.slack|sq0|[rs]k_live|AIza|hf_|\d{8}:|"
    r"AC[a-z0-9]{32}|SK[a-z0-9]{32}|[MNO][\w-]{23,25}\."
)

_ASSIGNED: Final = re.compile(
    r"(?:passw(?:or)?d|passwd|pwd|secret|token|api_?key|auth_?key|access_?key|private_?key|credential)s?\w*"
    r"[\"']?\s*(?:=|:=|:|=>)\s*[\"'`](?P<value>[^\"'`\s]{12,200})[\"'`]",
    re.IGNORECASE,
)
# Bits a sign; words and placeholders stay below, random passwords of 16 signs do not.
LEAST_ENTROPY: Final = 3.6
_PLACEHOLDER: Final = re.compile(
    r"example|sample|dummy|fake|placeholder|changeme|change[-_]me|your|xxx|test|mock|\.\.\.|<|\$\{|\{\{|%\(|^/|://"
    r"|^[a-z]+(?:[-_. ][a-z]+)+$|^[\w.]+\(",
    re.IGNORECASE,
)
_DIGEST: Final = re.compile(
    r"(?:[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{64}|[0-9a-f]{128}|sha\d+-.*)", re.IGNORECASE
)
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
# The value that a vendor's documentation prints is nobody's.
_KNOWN_EXAMPLE: Final = re.compile(r"EXAMPLE(?:KEY)?$")
LONGEST_LINE: Final = 5000  # signs of a line that are looked at in one piece; minified code is one line
_OVERLAP: Final = 500


@cache
def _detectors() -> tuple[RegexBasedDetector, ...]:
    """Return the detectors that are certain enough to be believed alone."""
    # The library takes a fifth of a second to import, and only this gate needs it.
    from detect_secrets.plugins import (  # noqa: PLC0415
        aws,
        azure_storage_key,
        discord,
        github_token,
        gitlab_token,
        mailchimp,
        npm,
        openai,
        private_key,
        pypi_token,
        sendgrid,
        slack,
        square_oauth,
        stripe,
        telegram_token,
        twilio,
    )

    return (
        aws.AWSKeyDetector(),
        azure_storage_key.AzureStorageKeyDetector(),
        discord.DiscordBotTokenDetector(),
        github_token.GitHubTokenDetector(),
        gitlab_token.GitLabTokenDetector(),
        mailchimp.MailchimpDetector(),
        npm.NpmDetector(),
        openai.OpenAIDetector(),
        private_key.PrivateKeyDetector(),
        pypi_token.PypiTokenDetector(),
        sendgrid.SendGridDetector(),
        slack.SlackDetector(),
        square_oauth.SquareOAuthDetector(),
        stripe.StripeDetector(),
        telegram_token.TelegramBotTokenDetector(),
        twilio.TwilioKeyDetector(),
    )


@cache
def _entropy_detector() -> HighEntropyStringsPlugin:
    from detect_secrets.plugins.high_entropy_strings import Base64HighEntropyString  # noqa: PLC0415

    return Base64HighEntropyString(limit=LEAST_ENTROPY)


def secrets_in(line: str) -> Iterator[str]:
    """Yield the kind of each secret on *line*, and nothing of the secret itself."""
    for start in range(0, max(len(line), 1), LONGEST_LINE - _OVERLAP):
        piece = line[start : start + LONGEST_LINE]
        yield from sorted({*_tokens(piece), *_passwords(piece)})


def _tokens(line: str) -> Iterator[str]:
    if not _HINTS.search(line):
        return
    for kind, pattern in _EXTRA_TOKENS.items():
        if pattern.search(line):
            yield kind
    for detector in _detectors():
        if any(not _KNOWN_EXAMPLE.search(secret) for secret in detector.analyze_string(line)):
            yield detector.secret_type


def _passwords(line: str) -> Iterator[str]:
    for match in _ASSIGNED.finditer(line):
        value = match["value"]
        if _PLACEHOLDER.search(value) or _DIGEST.fullmatch(value) or _UUID.search(value):
            continue
        if (
            len({sign.isdigit() for sign in value}) > 1
            and _entropy_detector().calculate_shannon_entropy(value) > LEAST_ENTROPY
        ):
            yield "Password"


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
_GOES_ON: Final = re.compile(r"(?:\\|\|)\s*$")
MOST_JOINED: Final = 50  # lines of one command; a file that only goes on is cut into such pieces
_FILTER: Final = re.compile(r"\b(?:filter|merge|diff)=")
_HARMLESS_ATTRIBUTES: Final = re.compile(r"(?:^|/)\.gitattributes$")


class ScanOptions(Record):
    secrets: bool = True
    commands: bool = True
    bypasses: bool = False
    paths: Literal["revise", "ask", "record", "ignore"] = "revise"


def judge(options: ScanOptions, context: GateContext) -> Finding:
    """Look at added lines, commit messages, the agent's words and commands, and the touched paths."""
    bypasses = list(_bypass_findings(context)) if options.bypasses else []
    parts = {
        "a secret is in the work": list(_secret_findings(context)) if options.secrets else [],
        "a forbidden command is in the work": list(_command_findings(context)) if options.commands else [],
        "a check of who may do what is got around": bypasses,
        "a sensitive file is touched": list(_path_findings(options, context)),
    }
    feedback = most_important([one for found in parts.values() for one in found])
    bad = [reason for reason, found in parts.items() if has_blocker(found)]
    if not bad:
        return let_pass("no secret, forbidden command or sensitive file is in the work", feedback)
    asks = options.paths == "ask" and bad == ["a sensitive file is touched"]
    return Finding(Outcome.ASK if asks else Outcome.REVISE, bad[0], feedback)


def _secret_findings(context: GateContext) -> Iterator[Feedback]:
    yield from _secrets_in_lines(context, context.diff, "")
    yield from _secrets_in_metadata(context)
    yield from _secrets_in_history(context)
    kinds = {kind for line in context.said.text.splitlines() for kind in secrets_in(line)}
    for kind in sorted(kinds):
        yield concern(f"the agent printed a secret ({kind}); whoever owns it should replace it")


def _secrets_in_metadata(context: GateContext) -> Iterator[Feedback]:
    """Look at what is merged beside the lines of files: messages, authors and paths."""
    for change in context.commits:
        for what, text in (("message", change.message), ("author", change.people)):
            for kind in sorted({kind for line in text.splitlines() for kind in secrets_in(line)}):
                where = f"the {what} of the commit {change.commit[:12]}"
                yield blocker(f"{where} has a secret ({kind}); write it anew", mend=ONE_COMMIT)
    now = {entry.path for entry in context.diff}
    gone = [past.entry for past in context.history if past.entry.path not in now]
    for entries, mend in ((context.diff, ""), (gone, ONE_COMMIT)):
        # The path itself is not repeated: it has the secret.
        parts = {part for entry in entries for part in entry.path.split("/")}
        for kind in sorted({kind for part in parts for kind in secrets_in(part)}):
            message = f"the name of a file has a secret ({kind}); rename it, in every commit"
            yield blocker(message, mend=mend)


def _secrets_in_lines(context: GateContext, entries: tuple[DiffEntry, ...], where: str) -> Iterator[Feedback]:
    for entry in entries:
        lines = entry.added if not entry.is_binary else _strings(context, entry)
        for line in lines:
            for kind in secrets_in(line.text):
                if kind != "Password" or not _LOCK.search(entry.path):
                    message = f"a secret ({kind}) is added here{where}; remove it, and have it replaced"
                    yield blocker(message, entry.path, None if entry.is_binary else line.number)


def _strings(context: GateContext, entry: DiffEntry) -> tuple[DiffLine, ...]:
    """Return the words inside a file that is no text: a zero byte must not hide the rest.

    Shells leave such bytes out, so that the words are also those which stand on both sides of one.
    """
    if not entry.is_there:
        return ()
    data = blob_contents(context.repository, [entry.blob]).get(entry.blob, b"")[:LARGEST_BINARY]
    found = dict.fromkeys([*_WORDS.findall(data), *_WORDS.findall(data.replace(b"\0", b""))])
    return tuple(DiffLine(0, words.decode()) for words in found)


def _secrets_in_history(context: GateContext) -> Iterator[Feedback]:
    """Look into each commit: what a later one removes is still merged with the history."""
    now = {(entry.path, line.text) for entry in context.diff for line in entry.added}
    for past in context.history:
        entry = past.entry
        lines = entry.added if not entry.is_binary else _strings(context, entry)
        gone = (line.text for line in lines if (entry.path, line.text) not in now)
        if any(True for line in gone for _ in secrets_in(line)):
            yield blocker(f"a secret was added here {past.where}", entry.path, mend=ONE_COMMIT)


def _command_findings(context: GateContext) -> Iterator[Feedback]:
    tracked = {path.split("/")[0] for path in context.base_files}
    for entry in context.diff:
        for line in _joined_lines(entry) if not entry.is_binary else _strings(context, entry):
            if not _is_command(context, entry, line.text):
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
    for command in context.said.commands:
        if bad := forbidden_command_in(command, tracked):
            yield blocker(f"the agent ran what is forbidden ({bad})")


def _joined_lines(entry: DiffEntry) -> Iterator[DiffLine]:
    """Yield added lines as a shell reads them: a command that ends with a backslash or a pipe goes on in the
    next one, a comment never does.
    """
    comment = _COMMENTS.get(suffix_of(entry.path), _COMMENT)
    begun: list[DiffLine] = []
    for line in entry.added:
        if begun and line.number != begun[-1].number + 1:
            yield _as_one_line(begun)
            begun = []
        begun.append(line)
        if not _GOES_ON.search(line.text) or comment.match(begun[0].text) or len(begun) == MOST_JOINED:
            yield _as_one_line(begun)
            begun = []
    if begun:
        yield _as_one_line(begun)


def _as_one_line(lines: list[DiffLine]) -> DiffLine:
    text = " ".join([*(line.text.rstrip().removesuffix("\\") for line in lines[:-1]), lines[-1].text])
    return DiffLine(lines[0].number, text)


def _bypass_findings(context: GateContext) -> Iterator[Feedback]:
    """Look at added lines of code for ways around a check; text for people may speak of them."""
    for entry in context.diff:
        if entry.is_binary or is_docs(entry.path) or is_for_tests(entry.path):
            continue
        comment = _COMMENTS.get(suffix_of(entry.path), _COMMENT)
        for line in entry.added:
            if not comment.match(line.text) and (way := bypass_in(line.text)):
                message = f"this gets around a check of who may do what ({way}); undo it, or ask a person"
                yield blocker(message, entry.path, line.number)
        kept = {line.text.strip() for line in entry.added}
        gone = {line.text.strip() for line in entry.removed if is_guard(line.text)} - kept
        for guard in sorted(gone) if entry.is_there else ():
            message = f"a check of who may do what is removed here ({guard}); put it back, or ask a person"
            yield blocker(message, entry.path)


def _is_command(context: GateContext, entry: DiffEntry, line: str) -> bool:
    if _COMMENTS.get(suffix_of(entry.path), _COMMENT).match(line) or _is_echo_only(line):
        return False
    return is_script(entry.path) or bool(_SHELLING.search(line)) or _is_shell_script(context, entry)


def _is_echo_only(line: str) -> bool:
    echo = _ECHO.match(line)
    return echo is not None and not _RUNS.search(_QUOTED.sub("", echo["rest"]))


def _is_shell_script(context: GateContext, entry: DiffEntry) -> bool:
    """Return whether a file without a telling name begins as a script of a shell."""
    if "." in entry.path.rsplit("/", 1)[-1]:
        return False
    if entry.is_binary:
        start = next((line.text for line in _strings(context, entry)), "")[:100]
    else:
        start = context.texts.get(entry.blob, "")[:100].split("\n", 1)[0]
    return start.startswith("#!") and bool(re.search(r"\b(?:ba|da|z|k)?sh\b", start))


def _path_findings(options: ScanOptions, context: GateContext) -> Iterator[Feedback]:
    if options.paths == "ignore":
        return
    note = concern if options.paths == "record" else blocker
    for entry in context.diff:
        for path in entry.paths:
            if (
                _is_sensitive(context, path)
                and not _is_named_in_scope(context, path)
                and not _is_harmless_attributes(entry)
            ):
                message = "this decides what runs or who may do what, and the scope does not name it"
                yield note(f"{message}; undo the change, or say why you are blocked", path)
    touched = {path for entry in context.diff for path in entry.paths}
    for past in context.history:
        path = past.entry.path
        if path not in touched and _is_sensitive(context, path) and not _is_named_in_scope(context, path):
            message = f"this decides what runs or who may do what, and was added {past.where}"
            yield note(message, path, mend=ONE_COMMIT)


def _is_sensitive(context: GateContext, path: str) -> bool:
    return bool(SENSITIVE.search(path)) or path == normpath(context.config.workflow)


def _is_named_in_scope(context: GateContext, path: str) -> bool:
    """Return whether the scope names *path* or a folder for such files; a folder around it is no name."""
    return context.bounds.names(path) or any(
        matches(pattern, path) and (SENSITIVE.search(pattern) or SENSITIVE.search(f"{pattern}/x"))
        for pattern in context.bounds.inside
    )


def _is_harmless_attributes(entry: DiffEntry) -> bool:
    """Return whether the change of attributes names no filter, merge or diff driver, and so runs nothing."""
    if not _HARMLESS_ATTRIBUTES.search(entry.path):
        return False
    return not any(_FILTER.search(line.text) for line in (*entry.added, *entry.removed))
