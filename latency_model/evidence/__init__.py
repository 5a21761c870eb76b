"""Evidence: measurements, what the closed forms predict for them, and how far apart the two are."""
