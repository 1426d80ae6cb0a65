"""The refs gate: what is cited exists, so that nobody builds on a file that an agent imagined."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Final, Literal, NamedTuple

from pydantic import Field

from liza.domain.record import Record
from liza.gates.context import GateContext
from liza.gates.files import suffix_of, word_set
from liza.gates.finding import Finding, blocker, concern, finding_from
from liza.gates.patterns import matches
from liza.repo.objects import TreeItem, blob_contents

# Not preceded by what makes it a part of a URL, of an absolute path or of a longer word.
_CITED: Final = re.compile(
    r"(?<![\w/.:@~-])((?:[\w.@+-]+/)*[\w.@+-]*\w):(\d{1,7})(?:[-\u2013](\d{1,7}))?(?!\w|\.\d)"
)
_DOC: Final = re.compile(r"(?<![\w/.:@~-])((?:[\w.@+-]+/)+[\w.@+-]+\.(?:md|rst|txt|adoc))\b")
_KNOWN: Final = word_set(
    "py js jsx ts tsx mjs cjs go rs java kt rb sh sql c h cc cpp hpp cs php swift scala md rst txt toml yaml "
    "yml json cfg ini html css vue svelte"
)


class RefsOptions(Record):
    max_docs: Annotated[int, Field(ge=0)] | None = None
    docs: str = "docs"
    on_miss: Literal["revise", "record"] = "revise"


class Citation(NamedTuple):
    path: str
    line: int


def citations_in(text: str) -> list[Citation]:
    """Return every `path:line` in *text*, with the last line where a range is meant."""
    found = []
    for match in _CITED.finditer(text):
        path, first, last = match.groups()
        if suffix_of(path) in _KNOWN:
            found.append(Citation(path.removeprefix("./"), max(int(first), int(last or 0))))
    return found


def judge(options: RefsOptions, case: GateContext) -> Finding:
    """Look up what the checkpoint, the answers and the reviewer's feedback cite."""
    said = _citing_texts(case)
    citations = {one for text in said for one in citations_in(text)}
    citations |= {Citation(one.file, one.line) for one in case.said.feedback if one.file and one.line}
    note = blocker if options.on_miss == "revise" else concern
    missed = [
        note(message, one.path, one.line) for one, message in _broken_citations(case, sorted(citations))
    ]
    docs = sorted({path for text in said for path in _DOC.findall(text) if matches(options.docs, path)})
    if options.max_docs is not None and len(docs) > options.max_docs:
        missed.append(
            note(f"more documents are cited than the {options.max_docs} that may be: {', '.join(docs)}")
        )
    return finding_from("what is cited exists", "something is cited that is not there", missed)


def _citing_texts(case: GateContext) -> list[str]:
    point = case.checkpoint
    planned = [point.intent, *point.assumptions, point.risks] if point else []
    reviewed = [text for one in case.said.feedback for text in (one.message, one.suggestion or "")]
    return [*planned, *case.said.answers, *reviewed]


def _broken_citations(case: GateContext, citations: list[Citation]) -> Iterator[tuple[Citation, str]]:
    if not citations:
        return
    blobs = {one: _matching_items(case, one.path) for one in citations}
    texts = blob_contents(case.repository, {item.blob for found in blobs.values() for item in found})
    for one, found in blobs.items():
        longest = max((_line_count(texts.get(item.blob, b"")) for item in found), default=0)
        if not found:
            yield one, "this file is cited, and neither the base nor the head has it"
        elif one.line > max(longest, 1):
            yield one, f"line {one.line} is cited, and the file ends at line {longest}"


def _matching_items(case: GateContext, path: str) -> list[TreeItem]:
    """Return the file in the base and in the head; a name without its directory will do where it is there."""
    found = []
    for files in (case.base_files, case.head_files):
        exact = files.get(path)
        found += [exact] if exact else [item for name, item in files.items() if name.endswith(f"/{path}")]
    return found


def _line_count(data: bytes) -> int:
    return data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
