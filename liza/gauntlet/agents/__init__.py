"""The agents of the gauntlet: what each does in place of honest work, by the standard library alone."""
