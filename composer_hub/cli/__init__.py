"""One module a noun of the command line: here, and only here, a stage meets the Hub."""
