"""The one place where a prompt is put together, so that no foreign text gets into one unfenced.

Every field is foreign unless `PLAIN` says that its shape makes it harmless. A fence carries a nonce that
whoever wrote the text could not know, so that the text cannot close it.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, Final, NamedTuple

from liza.domain.answers import AGENT_ANOMALY_TYPES
from liza.domain.record import safe_id

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from liza.domain.answers import Step
    from liza.workflow.document import Hat

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
UNFENCED: Final[dict[str, Callable[[str], str]]] = {
    "task": safe_id,
    "iteration": _number,
    "base": _commit,
    "commit": _commit,
}
_HOUSE_VALUES: Final = {"anomalies": ", ".join(AGENT_ANOMALY_TYPES)}


def required_fields(step: str) -> frozenset[str]:
    """Return the names of the values that the prompt of *step* needs."""
    return frozenset(_template(step).get_identifiers()) | {BOOTSTRAP}


def render_prompt(step: str, known: Mapping[str, str], *, nonce: str, hat: str | None = None) -> str:
    """Return the prompt for *step* with what is *known*, every foreign part of it fenced with *nonce*.

    *hat* is what the role of a workflow is there for.
    """
    missing, unknown = required_fields(step) - known.keys(), known.keys() - required_fields(step)
    if missing or unknown:
        message = f"the prompt for {step} lacks {sorted(missing)} and has no place for {sorted(unknown)}"
        raise ValueError(message)
    values = {name: _safe(name, text, nonce) for name, text in known.items()}
    house = _template("house").substitute(_HOUSE_VALUES, nonce=nonce, bootstrap=values.pop(BOOTSTRAP))
    part = f"{hat.strip()}\n\n" if hat else ""
    return f"{house}\n{part}{_template(step).substitute(values)}"


def hat_names() -> list[str]:
    """Return the files that say what a role is there for."""
    found = files("liza.daemon.prompts").joinpath("hats").iterdir()
    return sorted(one.name for one in found if one.name.endswith(".md") and one.name != "think.md")


def hat_text(name: str) -> str:
    """Return what the role is there for whose prompt is the file *name*."""
    return files("liza.daemon.prompts").joinpath("hats", name).read_text(encoding="utf-8")


def part_of(hat: Hat | None) -> str | None:
    """Return what a role is there for: in the words of its document, or of the file that it names."""
    if hat is None:
        return None
    return hat.instructions or (hat_text(hat.prompt) if hat.prompt else None)


def repeat_prompt(asked: str, why: str, *, nonce: str) -> str:
    """Return the prompt *asked* with the request to answer again, because of *why*."""
    return f"{asked}\n{_template('again').substitute(nonce=nonce, why=fence('why', why, nonce))}"


def correction_prompt(why: str, *, only_answer: bool, nonce: str) -> str:
    """Return the prompt that asks an agent in its own session to correct its answer, because of *why*."""
    name = "block" if only_answer else "mend"
    return _template(name).substitute(nonce=nonce, why=fence("why", why, nonce))


class AnswerForm(NamedTuple):
    """What an answer looks like: the prompt that has its form, and what a hat adds to it."""

    template: str
    role: str
    hat: str | None = None  # what the role is there for


def answer_prompt(form: AnswerForm, step: Step, reply: str, why: str, *, nonce: str) -> str:
    """Return the prompt that asks a new session for the answer block that *reply* lacks."""
    # Marked line by line, so that no block in it is a block of this prompt.
    end = "\n".join(f"| {line}" for line in reply.strip()[-LONGEST_REPLY:].split("\n"))
    return _template("answer").substitute(
        nonce=nonce,
        step=step,
        role=form.role,
        why=fence("why", why, nonce),
        reply=fence("reply", end, nonce),
        form="\n\n".join(
            [
                _template(form.template).template.partition("## Answer\n")[2].strip(),
                *([form.hat.strip()] if form.hat else []),
            ]
        ),
    )


def takeover_prompt(asked: str) -> str:
    """Return the prompt *asked* for an agent that goes on where another one had to stop."""
    return f"{asked}\n{TAKEN_OVER}\n"


def fence(name: str, text: str, nonce: str) -> str:
    """Return *text* between two lines that it cannot contain."""
    if nonce in text:
        message = f"the nonce is in the text of {name}; it must not be known to whoever wrote that"
        raise ValueError(message)
    return f"<<<{nonce} {name}\n{text.strip() or NONE}\n{nonce}>>>"


def _safe(name: str, text: str, nonce: str) -> str:
    check = UNFENCED.get(name)
    return check(text) if check else fence(name, text, nonce)


@cache
def _template(name: str) -> Template:
    return Template(files("liza.daemon.prompts").joinpath(f"{name}.md").read_text(encoding="utf-8"))
