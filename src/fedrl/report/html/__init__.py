"""A report of runs as one page that needs nothing else: no network, no other file."""
