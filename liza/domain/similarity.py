"""Whether two reasons say the same: a reviewer that rewords a rejection is still in a loop."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from typing import Final

# Of all the words of both; one word of four may differ, the subject of a short one may not.
SIMILARITY: Final = 0.75

# Where something is, and how many, changes from round to round while the reason stays.
_PLACES: Final = re.compile(
    r"(?<=\w):\d+(?::\d+)?\b|\b(?:at |on |in )?(?:lines?|cols?|columns?) \d+(?: ?(?:-|to) ?\d+)?"
)
_HEX: Final = re.compile(r"\b(?:0x[0-9a-f]+|(?=[a-f]*\d)[0-9a-f]{7,64})\b")
_NUMBERS: Final = re.compile(r"(?<!\w)\d+(?:[.,]\d+)*(?:%|(?:[mµn]?s|min|h|[kmg]i?b)?\b)")
_MARKS: Final = re.compile(r"[^\w\s]+|_(?!\w)|(?<!\w)_")
# "no" and "not" are missing on purpose: they turn a reason round.
_FILLERS: Final = frozenset(
    re.findall(
        r"\w+",
        "a an and are as at be been being by for from has have in is it its of on or still that the then "
        "there these this to was were with again yet you your please",
    )
)


def normalize(text: str) -> str:
    """Return *text* without case, punctuation, numbers, places and ids: what is left is what it says."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    for noise in (_PLACES, _HEX, _NUMBERS, _MARKS):
        plain = noise.sub(" ", plain)
    return " ".join(plain.split())


def normalized_digest(output: str) -> str:
    """Return a short text that is the same for outputs which say the same, whatever their numbers are."""
    return hashlib.sha256(normalize(output).encode(errors="surrogatepass")).hexdigest()[:16]


def are_similar(one: str | None, other: str | None) -> bool:
    """Return whether two reasons share nearly all words; empty reasons never do."""
    if not one or not other:
        return False
    mine, others = significant_words(one), significant_words(other)
    if not mine or not others:  # only marks or numbers: then they must be the very same
        return one.strip() == other.strip() != ""
    return are_similar_words(mine, others)


def are_similar_words(mine: frozenset[str], others: frozenset[str]) -> bool:
    """Return whether two word sets are similar; empty sets never are."""
    return bool(mine and others) and len(mine & others) >= SIMILARITY * len(mine | others)


def significant_words(text: str) -> frozenset[str]:
    """Return the words of *text* that matter for comparison."""
    return frozenset(_singular(word) for word in normalize(text).split() if word not in _FILLERS)


def _singular(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word  # noqa: PLR2004
