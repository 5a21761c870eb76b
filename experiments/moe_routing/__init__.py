"""Whether two numbers per layer, fitted on single sequences, predict how many experts a batch touches."""
