"""Agents that lie, cheat, wander, loop and attack, and the gauntlet that shows what Liza makes of them."""
