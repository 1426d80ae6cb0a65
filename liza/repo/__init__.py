"""The repository: worktrees, merges and salvage; the only place that runs git."""
