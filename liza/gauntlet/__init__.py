"""Agents that lie, cheat, wander, loop and attack, and the gauntlet that shows what Liza makes of them."""

import os

# Where git is missing, GitPython would end whoever imports it, also to list the cases; what runs git says it.
os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
