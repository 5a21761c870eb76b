"""From costs to advice: which draft length, at which batch and context, how sure, and what would help."""
