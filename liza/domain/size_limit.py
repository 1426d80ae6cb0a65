"""How large a change may be: lines and files, what may be tolerated, and what a person waived."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from liza.domain.verdicts import Risk

WAIVER: Final = "scope_limit"  # what a person waives by name for one goal


class ChangeSize(NamedTuple):
    loc: int
    files: int
    is_docs_only: bool = False
    risk: Risk | None = None  # as the step names it; None where nobody was asked


class SizeLimit(NamedTuple):
    max_loc: int | None = None
    max_files: int | None = None
    # `any`: it is enough to keep one of the two. A long change of one file is as easy to read as a short one.
    mode: Literal["any", "all"] = "any"
    tolerance: float = 0.0  # of the lines, for text alone at a low risk; never of the files


def oversize(size: ChangeSize, limit: SizeLimit, *, is_waived: bool = False) -> tuple[str, ...]:
    """Return what is too large about a change; nothing where a person waived the limits."""
    if is_waived:
        return ()
    over = {
        f"{size.loc} lines are changed, and {limit.max_loc} may be": _has_too_many_lines(size, limit),
        f"{size.files} files are changed, and {limit.max_files} may be": (
            limit.max_files is not None and size.files > limit.max_files
        ),
    }
    broken = tuple(message for message, is_over in over.items() if is_over)
    limits = [one for one in (limit.max_loc, limit.max_files) if one is not None]
    return broken if limit.mode == "all" or len(broken) == len(limits) else ()


def _has_too_many_lines(size: ChangeSize, limit: SizeLimit) -> bool:
    if limit.max_loc is None or size.loc <= limit.max_loc:
        return False
    is_tolerated = size.is_docs_only and size.risk in {None, Risk.LOW}
    return not (is_tolerated and size.loc < limit.max_loc * (1 + limit.tolerance))
