"""What an agent may know of our environment: an allowlist, since a secret that it never had cannot leak."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

ALLOWED: Final = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TMPDIR", "TZ", "LANG", "LANGUAGE"),
        *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"),
        # How a network is reached; without them an agent behind a proxy only hangs.
        *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy"),
        *("no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
        *(
            "VIRTUAL_ENV",
            "PYTHONPATH",
            "PYTHONDONTWRITEBYTECODE",
            "PYTHONPYCACHEPREFIX",
            "NODE_PATH",
            "GOPATH",
            "CARGO_HOME",
            "JAVA_HOME",
        ),
    }
)
NEVER: Final = frozenset({"LIZA_BOARD"})  # whatever the settings say: by it an agent could be a worker
ALLOWED_STEMS: Final = ("LC_", "GIT_AUTHOR_", "GIT_COMMITTER_")


# What keeps tools from waiting for a person who is not there, and git from leaving a process behind: its
# housekeeping would outlive the run, and ended half-way it can leave a lock.
HEADLESS: Final = {
    "GIT_EDITOR": "true",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_CONFIG_COUNT": "2",
    "GIT_CONFIG_KEY_0": "gc.auto",
    "GIT_CONFIG_VALUE_0": "0",
    "GIT_CONFIG_KEY_1": "maintenance.auto",
    "GIT_CONFIG_VALUE_1": "false",
}


def allowed_environment(environment: Mapping[str, str], also: Collection[str] = ()) -> dict[str, str]:
    """Return what of *environment* an agent gets: what is allowed to all, and the names in *also*."""
    return {
        name: with_own_programs_last(value, environment) if name == "PATH" else value
        for name, value in environment.items()
        if name not in NEVER and (name in ALLOWED or name.startswith(ALLOWED_STEMS) or name in also)
    }


def with_own_programs_last(path: str, environment: Mapping[str, str]) -> str:
    """Return *path* with the programs of Liza's own environment last, unless its user activated it.

    Whoever put Liza on the PATH wanted `liza`, not its `python3` in place of the project's.
    """
    own = os.path.join(sys.prefix, "bin")  # noqa: PTH118 - compared with words of a PATH
    activated = environment.get("VIRTUAL_ENV")
    if sys.prefix == sys.base_prefix or (
        activated and os.path.realpath(activated) == os.path.realpath(sys.prefix)
    ):
        return path
    words = path.split(os.pathsep)
    others = [word for word in words if os.path.normpath(word) != own]
    return os.pathsep.join([*others, own]) if len(others) < len(words) else path
