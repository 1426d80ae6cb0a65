"""What a file is, by its path and its mode: tables, so that nobody's word decides what counts as code."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from liza.repo.diff import EXECUTABLE, DiffEntry


def word_set(text: str) -> frozenset[str]:
    """Return the words of a table that would else be a hundred lines long."""
    return frozenset(text.split())


_DOCS: Final = word_set("md markdown rst txt adoc asciidoc org tex pdf")
_CONFIG: Final = word_set("yaml yml toml json json5 jsonc ini cfg conf env properties lock sum xml")
_DATA: Final = word_set(
    "csv tsv png jpg jpeg gif svg ico webp bmp ttf woff woff2 mp3 mp4 wav html htm css scss less map "
    "po pot mo log snap golden diff patch"
)
_INERT: Final = _DOCS | _CONFIG | _DATA

# What is run by a tool although its name looks harmless.
_RUN: Final = re.compile(
    r"""(?:^|/)(?:
        (?:GNU)?Makefile | makefile | [^/]*\.mk | Dockerfile[^/]* | [^/]*\.Dockerfile | Containerfile
      | Jenkinsfile | Justfile | justfile | Rakefile | Gemfile | Procfile | Vagrantfile | Brewfile | Tiltfile
      | CMakeLists\.txt | meson\.build | (?:docker-)?compose[^/]*\.ya?ml | BUILD(?:\.bazel)? | WORKSPACE
      | conftest\.py | sitecustomize\.py | usercustomize\.py | [^/]*\.pth | setup\.py | noxfile\.py
      | \.gitlab-ci\.ya?ml | \.travis\.ya?ml | azure-pipelines\.ya?ml | appveyor\.yml
      | bitbucket-pipelines\.yml
      | \.pre-commit-config\.yaml | \.pre-commit-hooks\.yaml | lefthook\.ya?ml | \.envrc | action\.ya?ml
      | [^/]*\.(?:dist|egg)-info/[^/]*
    )$
    | (?:^|/)\.(?:github|gitea|forgejo)/workflows/ | (?:^|/)\.(?:circleci|buildkite|ci|husky|githooks)/
    """,
    re.VERBOSE,
)

# Nobody writes or reads them: a package manager does.
_GENERATED: Final = re.compile(
    r"(?:^|/)(?:package-lock\.json|npm-shrinkwrap\.json|[^/]+-lock\.ya?ml|go\.sum|[^/]+\.lock(?:b|file)?)$"
)

_SCRIPT: Final = re.compile(r"\.(?:sh|bash|zsh|ksh|fish|sql|ps1|bat|cmd|mk|bats|psql|ddl)$", re.IGNORECASE)
_PACKAGE: Final = re.compile(r"(?:^|/)package\.json$")
_HOOK: Final = re.compile(r'"(?:pre|post)?(?:install|prepare|publish|pack|test|build|start|scripts)"\s*:')

# What coding programs read by themselves, as orders or as settings that run something.
_AGENT_FILES: Final = r"""
        (?:AGENTS?|CLAUDE|GEMINI|QWEN|WARP|CRUSH)(?:\.(?:local|override))?\.md
      | \.(?:claude|codex|gemini|qwen|opencode|cursor|windsurf|cline|roo|kilocode|continue|junie|kiro|amazonq
            |amp|augment|trae|goose|crush|aider|factory|agents)/.*
      | \.(?:cursorrules|windsurfrules|clinerules(?:/.*)?|roorules|roomodes|goosehints|rules)
      | \.github/(?:copilot-instructions\.md|(?:instructions|prompts|agents|chatmodes|skills)/.*)
      | opencode\.jsonc? | \.?mcp\.json | \.aider\.conf\.ya?ml | \.aider\.model\.[^/]* | \.claude\.json
      | \.vscode/.* | \.devcontainer/.* | \.devcontainer\.json | \.idea/.* | \.zed/.* | \.fleet/.*
"""
INSTRUCTIONS: Final = re.compile(rf"(?:^|/)(?:{_AGENT_FILES})$", re.VERBOSE | re.IGNORECASE)

# Whoever writes here changes what runs, who may do what, or where data goes, outside of the code.
SENSITIVE: Final = re.compile(
    rf"""(?:^|/)(?:
        liza\.ya?ml | {_AGENT_FILES} |
        \.github/(?:workflows|actions)/.* | \.(?:gitea|forgejo)/workflows/.* | \.gitlab-ci\.ya?ml
      | \.travis\.ya?ml
      | \.circleci/.* | \.buildkite/.* | Jenkinsfile | azure-pipelines\.ya?ml | bitbucket-pipelines\.yml
      | \.husky/.* | \.githooks/.* | \.pre-commit-config\.yaml | lefthook\.ya?ml | hooks/(?:pre|post)-[a-z-]+
      | \.gitattributes | \.gitmodules | \.gitconfig | \.mailmap | CODEOWNERS
      | \.npmrc | \.yarnrc(?:\.yml)? | \.pypirc | pip\.conf | \.netrc | \.envrc
      | \.env(?:\.(?!example$|sample$|template$)[^/]*)? | \.ssh/.* | \.aws/.* | \.kube/.* | \.docker/.*
      | [^/]*\.(?:pem|key|p12|pfx|jks|keystore|kdbx) | id_(?:rsa|dsa|ecdsa|ed25519)
      | credentials(?:\.json)? | (?:service[_-]?account|secrets?)[^/]*\.(?:json|ya?ml)
      | Dockerfile[^/]* | Containerfile | sitecustomize\.py | usercustomize\.py | [^/]*\.pth
    )$""",
    re.VERBOSE | re.IGNORECASE,
)


def suffix_of(path: str) -> str:
    return path.rsplit("/", 1)[-1].rpartition(".")[2].lower() if "." in path.rsplit("/", 1)[-1][1:] else ""


def is_generated(path: str) -> bool:
    """Say whether *path* is a file in which a package manager notes what it chose."""
    return bool(_GENERATED.search(path))


def is_config(path: str) -> bool:
    """Return whether *path* is a file of settings."""
    return suffix_of(path) in _CONFIG


def is_docs(path: str, mode: str = "") -> bool:
    """Say whether *path* is for readers only."""
    return suffix_of(path) in _DOCS and not is_code(path, mode)


def is_code(path: str, mode: str = "") -> bool:
    """Say whether *path* can be run, or decides what is; what nobody knows counts as code."""
    if mode == EXECUTABLE or _RUN.search(path) or is_script(path):
        return True
    suffix = suffix_of(path)
    return bool(suffix) and suffix not in _INERT


def is_script(path: str) -> bool:
    """Say whether lines of *path* are commands: of a shell, a database, make or a build."""
    return bool(_SCRIPT.search(path) or (_RUN.search(path) and not path.endswith(".py")))


def touches_code(entry: DiffEntry) -> bool:
    """Say whether *entry* changes what is run, at either end of a rename."""
    modes = {mode for mode in (entry.old_mode, entry.mode) if mode == EXECUTABLE}
    if any(is_code(path, next(iter(modes), "")) for path in entry.paths):
        return True
    lines = (*entry.added, *entry.removed)
    if any(line.number == 1 and line.text.startswith("#!") for line in lines):
        return True
    return bool(_PACKAGE.search(entry.path)) and any(_HOOK.search(line.text) for line in lines)


def diff_facts(entries: Iterable[DiffEntry]) -> frozenset[str]:
    """Return which of the named predicates hold for a diff."""
    entries = tuple(entries)
    code = any(map(touches_code, entries))
    docs = all(is_docs(path, entry.mode) for entry in entries for path in entry.paths)
    held = {
        "empty_diff": not entries,
        "no_code": not code,
        "no_code_changes": not code,
        "docs_only": bool(entries) and docs and not code,
    }
    return frozenset(name for name, holds in held.items() if holds)
