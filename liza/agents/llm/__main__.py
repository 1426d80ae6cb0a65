"""The process of a conversation: `python -m liza.agents.llm`, with its job as JSON on stdin."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from liza.agents.llm.backend import ConversationReport, ConversationRequest
from liza.agents.llm.faults import Fault
from liza.agents.llm.loop import Conversation, ConversationEnd
from liza.agents.llm.model import LiteLlmModel
from liza.agents.llm.tools import Toolbox
from liza.domain.answers import ANSWER_TYPES
from liza.system.host import host

if TYPE_CHECKING:
    from collections.abc import Mapping


def emit_event(happened: Mapping[str, object]) -> None:
    """Print one thing that happened: a line of the transcript, and a sign of life."""
    sys.stdout.write(f"{json.dumps(happened)}\n")
    sys.stdout.flush()


def run_conversation(job: ConversationRequest, scratch: Path) -> ConversationEnd:
    tools = Toolbox(job.step, job.cwd, scratch, mark=job.folder)
    try:
        model = LiteLlmModel(job.model, job.effort)
        schema = ANSWER_TYPES[job.step].model_json_schema()
        return Conversation(model, tools, job.step, schema, emit_event).run(job.prompt)
    except Fault as fault:
        return ConversationEnd(fault.handling.ending, why=str(fault), reset=fault.reset)
    finally:
        tools.close()


def main() -> int:
    """Have the conversation that stdin describes, and print what came of it as the last line."""
    job = ConversationRequest.model_validate_json(sys.stdin.buffer.read())
    host().forbid_memory_reads()
    # Not in the folder of the run, which is not in the sandbox; all of it is in the transcript.
    with TemporaryDirectory(prefix="liza-shell-", ignore_cleanup_errors=True) as scratch:
        end = run_conversation(job, Path(scratch))
    done = ConversationReport(ending=end.ending, text=end.text, why=end.why, reset=end.reset, usage=end.usage)
    emit_event({"finished": done.model_dump(mode="json")})
    return 0


if __name__ == "__main__":
    sys.exit(main())
