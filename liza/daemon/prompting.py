"""The one place where a prompt is put together, so that no foreign text gets into one unfenced.

Every field is foreign unless `PLAIN` says that its shape makes it harmless. A fence carries a nonce that
whoever wrote the text could not know, so that the text cannot close it.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, Final

from liza.domain.answers import ANOMALIES, ROLES
from liza.domain.record import safe_id

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from liza.domain.answers import Step

NONE: Final = "(none)"
LONGEST_REPLY: Final = 12_000  # characters of the end of a reply whose answer is asked for again
BOOTSTRAP: Final = "bootstrap"  # who is asked, about what, and where: the same for every step
TAKEN_OVER: Final = (
    "Another agent began this step and could not go on, which was no fault of its work. What it changed is "
    "still in the working directory: look at that first, keep what is right, and go on from there."
)


def _number(text: str) -> str:
    return str(int(text))


def _commit(text: str) -> str:
    return f"{int(text, 16):0{len(text)}x}"


# What each may be, by what it is checked with; all else is fenced.
PLAIN: Final[dict[str, Callable[[str], str]]] = {
    "task": safe_id,
    "iteration": _number,
    "base": _commit,
    "commit": _commit,
}
_OURS: Final = {"anomalies": ", ".join(ANOMALIES)}


def fields(step: Step) -> frozenset[str]:
    """Return what has to be known to prompt for *step*."""
    return frozenset(_template(step).get_identifiers()) | {BOOTSTRAP}


def prompt(step: Step, known: Mapping[str, str], *, nonce: str) -> str:
    """Return the prompt for *step* with what is *known*, every foreign part of it fenced with *nonce*."""
    missing, unknown = fields(step) - known.keys(), known.keys() - fields(step)
    if missing or unknown:
        message = f"the prompt for {step} lacks {sorted(missing)} and has no place for {sorted(unknown)}"
        raise ValueError(message)
    values = {name: _safe(name, text, nonce) for name, text in known.items()}
    house = _template("house").substitute(_OURS, nonce=nonce, bootstrap=values.pop(BOOTSTRAP))
    return f"{house}\n{_template(step).substitute(values)}"


def asked_again(asked: str, why: str, *, nonce: str) -> str:
    """Return the prompt *asked* with a demand for a better answer, since the last had the fault *why*."""
    return f"{asked}\n{_template('again').substitute(nonce=nonce, why=fenced('why', why, nonce))}"


def better_wanted(why: str, *, only_answer: bool, nonce: str) -> str:
    """Return what an agent is told in its own session, whose last answer had the fault *why*."""
    name = "block" if only_answer else "mend"
    return _template(name).substitute(nonce=nonce, why=fenced("why", why, nonce))


def answer_wanted(step: Step, reply: str, why: str, *, nonce: str) -> str:
    """Return the demand for the answer that *reply* means, to whoever has no memory of having said it."""
    # Marked line by line, so that no block in it is a block of this prompt.
    end = "\n".join(f"| {line}" for line in reply.strip()[-LONGEST_REPLY:].split("\n"))
    return _template("answer").substitute(
        nonce=nonce,
        step=step,
        role=ROLES[step],
        why=fenced("why", why, nonce),
        reply=fenced("reply", end, nonce),
        form=_template(step).template.partition("## Answer\n")[2].strip(),
    )


def taken_over(asked: str) -> str:
    """Return the prompt *asked* for an agent that goes on where another one had to stop."""
    return f"{asked}\n{TAKEN_OVER}\n"


def fenced(name: str, text: str, nonce: str) -> str:
    """Return *text* between two lines that it cannot contain."""
    if nonce in text:
        message = f"the nonce is in the text of {name}; it must not be known to whoever wrote that"
        raise ValueError(message)
    return f"<<<{nonce} {name}\n{text.strip() or NONE}\n{nonce}>>>"


def _safe(name: str, text: str, nonce: str) -> str:
    check = PLAIN.get(name)
    return check(text) if check else fenced(name, text, nonce)


@cache
def _template(name: str) -> Template:
    return Template(files("liza.daemon.prompts").joinpath(f"{name}.md").read_text(encoding="utf-8"))
