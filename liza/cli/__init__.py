"""What people type and read: the command line, its commands and its views."""
