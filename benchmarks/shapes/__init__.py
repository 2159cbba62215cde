"""dibs beside itself, on queues of different shapes: `python benchmarks/shapes --help`."""
