"""Tasks in, episodes with rewards out."""
