"""dibs' own workers and producers as processes, for the benchmarks that measure dibs beside itself: health and shapes."""
