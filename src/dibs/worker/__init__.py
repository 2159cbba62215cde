"""The worker: claims jobs, runs them, settles them, renews their leases meanwhile, and does upkeep for all."""
