"""From nouns to seconds: counts of one engine step, its cost on a machine, a speculative round, memory."""
