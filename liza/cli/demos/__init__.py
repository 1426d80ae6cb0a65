"""One directory a demo, named after the workflow that it shows."""
