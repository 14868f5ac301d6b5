"""A tested package in, verifiable tasks out."""
