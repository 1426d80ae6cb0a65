"""The keys of the live terminal, as the screen, its help and docs/ have them."""

from __future__ import annotations

from typing import Final, NamedTuple


class BoardKey(NamedTuple):
    """A key of the board: what it does in a word, and in a sentence for help."""

    key: str
    action: str
    word: str
    says: str
    name: str = ""  # what stands on it, where textual calls it otherwise

    @property
    def shown(self) -> str:
        return self.name or self.key


# The first of them are shown below the board; help lists all.
KEYS: Final = (
    BoardKey("question_mark", "help", "help", "this page", "?"),
    BoardKey("a", "answer", "answer", "act on the question: answer, decide, resolve"),
    BoardKey("y", "accept", "accept", "look at what waits for approval; y again accepts it"),
    BoardKey("n", "reject", "reject", "the same; n there sends it back, with comments on lines"),
    BoardKey("d", "diff", "diff", "what the task changed, by file"),
    BoardKey("l", "logs", "logs", "what its agent says and does"),
    BoardKey("e", "explain", "explain", "why it does not continue"),
    BoardKey("m", "note", "note", "tell the agents something about the task"),
    BoardKey("v", "switch_view", "view", "the board as columns or as a table"),
    BoardKey("slash", "search", "search", "only tasks with these words", "/"),
    BoardKey("q", "app.quit", "quit", "leave; the run continues"),
    BoardKey("t", "retry", "retry", "give a task that is stuck another chance"),
    BoardKey("p", "pause", "pause", "PAUSE: freeze all agents"),
    BoardKey("u", "resume", "resume", "take back PAUSE, CHECKPOINT and ABORT"),
    BoardKey("c", "checkpoint", "checkpoint", "CHECKPOINT: halt at the next safe point, with a summary"),
    BoardKey("X", "abort", "abort", "ABORT: end every agent; it asks once"),
    BoardKey("dollar_sign", "cost", "cost", "what all runs cost", "$"),
    BoardKey("escape", "close_search", "all", "all tasks again", "escape"),
)

# The same everywhere.
COMMON_KEYS: Final = (
    ("arrows, j, k", "move; page up, page down, home and end go further"),
    ("tab", "go to the next list: questions, tasks, workers"),
    ("enter", "on a question: act on it; on a task: all about it; on a worker: its log"),
    ("[ ]", "in a diff: previous file, next file"),
    ("c", "in a diff: comment on the line; n sends all comments back as one round"),
    ("u", "in a diff: take back the comments on the line"),
)


def key_rows() -> list[tuple[str, str]]:
    """Return every key with what it does."""
    return [*((one.shown, one.says) for one in KEYS), *COMMON_KEYS]
