"""Every command of `liza`, by what it is about; each registers itself in the table."""
