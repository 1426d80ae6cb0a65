"""The coding programs that Liza can drive, one row each; nothing else knows one of them by name.

`crush` has no row: its package fetches the program itself from elsewhere, so that it could not be tried.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from liza.agents.clis import aider, claude, codex, gemini, goose, mini, opencode
from liza.agents.clis.spec import Cli, Effort, Permission, PermissionFlags, PromptInput, SetupVariant

if TYPE_CHECKING:
    from collections.abc import Mapping

NONE, READ, WRITE = Permission.NONE, Permission.READ, Permission.WRITE

_ANTHROPIC: Final = ("ANTHROPIC_BASE_URL", "ANTHROPIC_MODEL", "ANTHROPIC_CUSTOM_HEADERS")
_OPENAI: Final = (
    "OPENAI_BASE_URL",
    "OPENAI_API_BASE",
    "OPENAI_ORG_ID",
    "OPENAI_ORGANIZATION",
    "OPENAI_PROJECT",
)
MODEL_KEYS: Final = (
    *("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY", "DEEPSEEK_API_KEY"),
    *("MISTRAL_API_KEY", "GROQ_API_KEY", "XAI_API_KEY"),
)
MODEL_HOSTS: Final = (
    "api.anthropic.com",
    "api.openai.com",
    "generativelanguage.googleapis.com",
    "openrouter.ai",
)

_CLAUDE: Final = Cli(
    name="claude",
    programs=("claude",),
    provider="anthropic",
    parse=claude.parse,
    begin=("-p",),
    resume=("-p", "--resume", "$session"),
    # No server, hook or permission of the repository's: a coder could leave one there for its reviewer.
    words=(
        *("--output-format", "stream-json", "--verbose", "--strict-mcp-config"),
        *("--setting-sources", "user"),
    ),
    permission_flags={
        # Not an allowlist of git commands: `git diff --output=FILE` writes. In this mode claude itself
        # tells which commands only read, and refuses the others without asking.
        NONE: PermissionFlags(("--permission-mode", "dontAsk", "--tools", "")),
        READ: PermissionFlags(("--permission-mode", "dontAsk", "--tools", "Read,Grep,Glob,Bash")),
        WRITE: PermissionFlags(
            (
                *("--permission-mode", "acceptEdits", "--allowedTools", "Bash"),
                *("--tools", "Read,Grep,Glob,Bash,Edit,Write,NotebookEdit"),
            )
        ),
    },
    effort=("--effort", "$effort"),
    efforts={**{effort: effort.value for effort in Effort}, Effort.MINIMAL: "low", Effort.XHIGH: "max"},
    environment={
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_RETRIES": "3",  # its default goes on for minutes with a key that is wrong
        "DISABLE_AUTOUPDATER": "1",
    },
    keys=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
    env_passthrough=(
        *_ANTHROPIC,
        *("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLOUD_ML_REGION", "AWS_REGION"),
        *("ANTHROPIC_VERTEX_PROJECT_ID", "AWS_BEARER_TOKEN_BEDROCK"),
    ),
    credentials=(".claude/.credentials.json",),
    # It reads no settings of the repository's, and so does not read this by itself.
    advice="Follow CLAUDE.md in this directory, if there is one.",
    writable=(".claude", ".claude.json", ".cache/claude-cli-nodejs"),
    endpoints=("api.anthropic.com",),
)

_CODEX: Final = Cli(
    name="codex",
    programs=("codex",),
    provider="openai",
    parse=codex.parse,
    begin=("exec",),
    resume=("exec", "resume", "$session"),
    words=("--json", "--skip-git-repo-check"),
    # By setting, since `resume` has no flag for it.
    permission_flags={
        NONE: PermissionFlags(("-c", 'sandbox_mode="read-only"')),
        READ: PermissionFlags(("-c", 'sandbox_mode="read-only"')),
        WRITE: PermissionFlags(("-c", 'sandbox_mode="workspace-write"')),
    },
    prompt=("-",),
    model=("-m", "$model"),
    effort=("-c", 'model_reasoning_effort="$effort"'),
    efforts={**{effort: effort.value for effort in Effort}, Effort.MAX: "xhigh"},
    # Not under /tmp, where it does not put what its own sandbox needs: every command would fail, with exit 0.
    environment={"CODEX_HOME": "$home/.codex"},
    settings=(
        SetupVariant("CODEX_API_KEY"),
        SetupVariant("OPENAI_API_KEY", environment={"CODEX_API_KEY": "$OPENAI_API_KEY"}),
    ),
    keys=("CODEX_API_KEY", "OPENAI_API_KEY"),
    env_passthrough=_OPENAI,
    credentials=(".codex/auth.json",),
    is_cumulative=True,
    # Inside of its own sandbox it cannot commit: git's directory is not in the worktree. Ours lets it, and
    # need not leave user namespaces open to it.
    flags_in_sandbox=PermissionFlags(("-c", 'sandbox_mode="danger-full-access"')),
    writable=(".codex",),
    brings_own_sandbox=True,
    endpoints=("api.openai.com", "chatgpt.com", "auth.openai.com"),
)


_WRITING_TOOLS: Final = [
    "write_file",
    "replace",
    "edit",
    "run_shell_command",
    "save_memory",
    "invoke_agent",
    "activate_skill",
]
# What counts more than any setting of the repository's, which a coder could leave there for its reviewer.
_READ_ONLY_SETTINGS: Final = json.dumps(
    {
        "tools": {
            "core": ["list_directory", "read_file", "read_many_files", "grep_search", "glob"],
            "allowed": [],
            "exclude": _WRITING_TOOLS,
        },
        "permissions": {"allow": []},
        "hooksConfig": {"enabled": False},
        "disableAllHooks": True,
        "mcp": {"allowed": ["none"]},
    }
)


_NO_TOOLS_SETTINGS: Final = json.dumps(
    {**json.loads(_READ_ONLY_SETTINGS), "tools": {"core": ["none"], "exclude": _WRITING_TOOLS}}
)


def _gemini_auth(kind: str) -> Mapping[str, str]:
    return {".gemini/settings.json": json.dumps({"security": {"auth": {"selectedType": kind}}})}


_GEMINI: Final = Cli(
    name="gemini",
    programs=("gemini",),
    provider="google",
    parse=gemini.parse,
    begin=(),
    resume=("--resume", "$session"),
    words=("-o", "stream-json"),
    # In the default mode, whoever is not at a terminal is offered no tool that writes or runs anything,
    # unless the repository's settings allow it: those of the system have the last word.
    permission_flags={
        NONE: PermissionFlags(
            ("--approval-mode", "default", "--allowed-mcp-server-names", "none"),
            {"GEMINI_CLI_SYSTEM_SETTINGS_PATH": "$home/system.json"},
            {"system.json": _NO_TOOLS_SETTINGS},
        ),
        READ: PermissionFlags(
            ("--approval-mode", "default", "--allowed-mcp-server-names", "none"),
            {"GEMINI_CLI_SYSTEM_SETTINGS_PATH": "$home/system.json"},
            {"system.json": _READ_ONLY_SETTINGS},
        ),
        WRITE: PermissionFlags(("--approval-mode", "yolo", "--allowed-mcp-server-names", "none")),
    },
    environment={"GEMINI_CLI_TRUST_WORKSPACE": "true"},
    # It ends with exit 41 where it is not told how it is logged in.
    settings=(
        SetupVariant("GEMINI_API_KEY", files=_gemini_auth("gemini-api-key")),
        SetupVariant("GOOGLE_API_KEY", files=_gemini_auth("vertex-ai")),
        SetupVariant(files=_gemini_auth("oauth-personal")),
    ),
    keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    env_passthrough=(
        *("GOOGLE_GEMINI_BASE_URL", "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_CLOUD_PROJECT"),
        *("GOOGLE_CLOUD_LOCATION", "GEMINI_MODEL"),
    ),
    credentials=(".gemini/oauth_creds.json", ".gemini/google_accounts.json"),
    licences=("GOOGLE_CLOUD_PROJECT",),  # personal logins ended in June 2026
    writable=(".gemini",),
    endpoints=("generativelanguage.googleapis.com", "cloudcode-pa.googleapis.com", "oauth2.googleapis.com"),
)

_QWEN: Final = Cli(
    name="qwen",
    programs=("qwen",),
    provider="qwen",
    parse=claude.parse,
    begin=(),
    resume=("--resume", "$session"),
    words=("-o", "stream-json"),
    permission_flags={
        NONE: PermissionFlags(
            ("--approval-mode", "default", "--allowed-mcp-server-names", "none"),
            {"QWEN_CODE_SYSTEM_SETTINGS_PATH": "$home/system.json"},
            {"system.json": _NO_TOOLS_SETTINGS},
        ),
        READ: PermissionFlags(
            ("--approval-mode", "default", "--allowed-mcp-server-names", "none"),
            {"QWEN_CODE_SYSTEM_SETTINGS_PATH": "$home/system.json"},
            {"system.json": _READ_ONLY_SETTINGS},
        ),
        WRITE: PermissionFlags(("--approval-mode", "yolo", "--allowed-mcp-server-names", "none")),
    },
    settings=(
        SetupVariant(
            "OPENAI_API_KEY",
            files={".qwen/settings.json": json.dumps({"security": {"auth": {"selectedType": "openai"}}})},
        ),
        SetupVariant(
            files={".qwen/settings.json": json.dumps({"security": {"auth": {"selectedType": "qwen-oauth"}}})}
        ),
    ),
    keys=("OPENAI_API_KEY",),
    env_passthrough=(*_OPENAI, "OPENAI_MODEL"),
    credentials=(".qwen/oauth_creds.json",),
    is_cumulative=True,
    writable=(".qwen",),
    endpoints=("chat.qwen.ai", "portal.qwen.ai", "dashscope.aliyuncs.com"),
)

_OPENCODE: Final = Cli(
    name="opencode",
    programs=("opencode",),
    provider=None,
    parse=opencode.parse,
    begin=("run",),
    resume=("run", "--session", "$session"),
    words=("--format", "json", "--pure"),
    # Denying edits alone only makes it write through its shell.
    permission_flags={
        NONE: PermissionFlags(environment={"OPENCODE_PERMISSION": json.dumps({"*": "deny"})}),
        READ: PermissionFlags(
            environment={
                "OPENCODE_PERMISSION": json.dumps(
                    {"*": "deny", "read": "allow", "grep": "allow", "glob": "allow", "list": "allow"}
                )
            }
        ),
        WRITE: PermissionFlags(
            environment={"OPENCODE_PERMISSION": json.dumps({"*": "allow", "question": "deny"})}
        ),
    },
    effort=("--variant", "$effort"),
    efforts={effort: effort.value for effort in Effort},
    environment={
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_PROJECT_CONFIG": "1",  # it may name servers, plugins and permissions
    },
    keys=MODEL_KEYS,
    env_passthrough=(*_ANTHROPIC, *_OPENAI, "OPENCODE_CONFIG"),
    credentials=(".local/share/opencode/auth.json",),
    writable=(".config/opencode", ".local/share/opencode", ".local/state/opencode", ".cache/opencode"),
    endpoints=(*MODEL_HOSTS, "opencode.ai", "models.dev"),
)

_GOOSE: Final = Cli(
    name="goose",
    programs=("goose",),
    provider=None,
    parse=goose.parse,
    begin=("run", "--name", "$run"),
    resume=("run", "--resume", "--name", "$session"),
    names_sessions=True,
    words=("-q", "--output-format", "stream-json", "--with-builtin", "developer"),
    # Its modes in between ask a person and end with an error where there is none: reading is not to be had.
    permission_flags={
        NONE: PermissionFlags(environment={"GOOSE_MODE": "chat"}),
        READ: PermissionFlags(environment={"GOOSE_MODE": "chat"}),
        WRITE: PermissionFlags(environment={"GOOSE_MODE": "auto"}),
    },
    prompt=("-i", "-"),
    environment={"GOOSE_DISABLE_KEYRING": "1", "GOOSE_TELEMETRY_ENABLED": "false"},
    settings=(
        SetupVariant("GOOSE_PROVIDER"),
        SetupVariant("ANTHROPIC_API_KEY", environment={"GOOSE_PROVIDER": "anthropic"}),
        SetupVariant("OPENAI_API_KEY", environment={"GOOSE_PROVIDER": "openai"}),
        SetupVariant(
            "GEMINI_API_KEY", environment={"GOOSE_PROVIDER": "google", "GOOGLE_API_KEY": "$GEMINI_API_KEY"}
        ),
        SetupVariant("OPENROUTER_API_KEY", environment={"GOOSE_PROVIDER": "openrouter"}),
    ),
    keys=MODEL_KEYS,
    env_passthrough=("GOOSE_PROVIDER", "GOOSE_MODEL", "OPENAI_HOST", "ANTHROPIC_HOST", *_OPENAI),
    credentials=(".config/goose/config.yaml", ".config/goose/secrets.yaml"),
    is_cumulative=True,
    writable=(".config/goose", ".local/share/goose", ".local/state/goose"),
    endpoints=MODEL_HOSTS,
)

_AIDER: Final = Cli(
    name="aider",
    programs=("aider",),
    provider=None,
    parse=aider.parse,
    begin=(),
    resume=(),
    words=(
        *("--yes-always", "--no-check-update", "--no-show-release-notes", "--no-show-model-warnings"),
        *("--analytics-disable", "--no-gitignore", "--no-pretty", "--no-stream", "--no-detect-urls"),
        # Liza commits what is left. The map of the repository is a cache inside the worktree.
        *("--no-auto-commits", "--no-dirty-commits", "--map-tokens", "0", "--no-suggest-shell-commands"),
        *("--llm-history-file", "$report", "--chat-history-file", "$home/chat.md"),
        *("--input-history-file", "$home/input"),
    ),
    # Whole files as the format of edits would take the answer's block for a file and write it.
    permission_flags={
        NONE: PermissionFlags(("--chat-mode", "ask")),
        READ: PermissionFlags(("--chat-mode", "ask")),
        WRITE: PermissionFlags(("--edit-format", "diff")),
    },
    feed=PromptInput.FILE,
    prompt=("--message-file", "$prompt"),
    effort=("--reasoning-effort", "$effort"),
    efforts={**{effort: effort.value for effort in Effort}, Effort.XHIGH: "high", Effort.MAX: "high"},
    environment={"LITELLM_LOCAL_MODEL_COST_MAP": "True"},
    # Where its home has no name for commits, it writes one into the repository's configuration.
    settings=(SetupVariant(files={".gitconfig": "[user]\n\tname = aider\n\temail = aider@localhost\n"}),),
    keys=MODEL_KEYS,
    env_passthrough=(*_ANTHROPIC, *_OPENAI),
    credentials=(".aider.conf.yml",),
    report="llm.history",
    writable=(".aider", ".cache"),
    endpoints=MODEL_HOSTS,
)

_MINI: Final = Cli(
    name="mini",
    programs=("mini",),
    provider=None,
    parse=mini.parse,
    begin=("-y", "--exit-immediately"),
    resume=(),
    words=("-l", "0", "-c", "mini.yaml", "-o", "$report"),
    permission_flags=dict.fromkeys(Permission, PermissionFlags()),
    feed=PromptInput.YAML,
    prompt=("-c", "$prompt"),
    environment={
        "MSWEA_CONFIGURED": "true",
        "MSWEA_SILENT_STARTUP": "1",
        "MSWEA_COST_TRACKING": "ignore_errors",
        "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": "3",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    },
    keys=MODEL_KEYS,
    env_passthrough=(*_ANTHROPIC, *_OPENAI, "MSWEA_MODEL_NAME"),
    credentials=(".config/mini-swe-agent/.env",),
    advice="Write the block of the answer into the text of your last message, beside the command that "
    "submits; what commands print is not read.",
    report="trajectory.json",
    has_read_only_mode=False,
    version=("--help",),  # its first line has it
    writable=(".config/mini-swe-agent",),
    endpoints=MODEL_HOSTS,
)

# In the order in which one is chosen where nobody chose.
CLIS: Final[dict[str, Cli]] = {
    cli.name: cli for cli in (_CLAUDE, _CODEX, _GEMINI, _OPENCODE, _QWEN, _GOOSE, _AIDER, _MINI)
}

# What the name of a model says about who serves it, where the program does not.
PROVIDER_BY_MODEL: Final[tuple[tuple[str, str], ...]] = (
    (r"^(?:anthropic/|claude|opus|sonnet|haiku)", "anthropic"),
    (r"^(?:openai/|gpt|o\d|codex)", "openai"),
    (r"^(?:google/|gemini|vertex)", "google"),
    (r"^([a-z0-9_-]+)/", r"\1"),
)
