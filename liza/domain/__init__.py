"""Values and pure rules: no files, no processes, no clock."""
