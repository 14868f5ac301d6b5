"""Training on machines that meet rarely: ranks that exchange weights every few steps, workers that meet on the Hub."""
