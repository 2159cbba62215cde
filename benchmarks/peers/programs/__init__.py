"""One program for each contestant; each runs with an installation of its own and imports nothing else of ours."""
