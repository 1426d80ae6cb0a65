"""The page: what `liza web` serves to a browser, and nothing that needs a network."""
