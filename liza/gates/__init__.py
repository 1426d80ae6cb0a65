"""Checks that turn a tree and the facts about it into a verdict: one small module a kind."""
