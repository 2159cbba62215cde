"""How dibs does when it runs for long, and when others keep the database from cleaning up: `python benchmarks/health --help`."""
