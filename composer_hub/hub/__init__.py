"""Rows and a card in, a dataset revision on the Hub out, and back."""
