"""The command line: verbs, no logic."""
