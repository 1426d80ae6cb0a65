"""The agents of the zoo: what each does in place of honest work, with nothing but the standard library."""
