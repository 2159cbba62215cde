"""The `dibs` command: each command parses, calls one method and prints. It decides nothing about jobs."""
