"""Agents' own configuration files: what is not ours keeps its bytes."""
