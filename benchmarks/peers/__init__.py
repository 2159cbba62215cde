"""dibs beside its peers and beside raw SQL: `python benchmarks/peers --help`."""
