"""Parts for frameworks. Nothing here is imported unless somebody who uses that framework does it."""
