"""Liza runs coding agents unattended on a git repository and trusts nothing that they say."""

__version__ = "0.1.0"
