"""Imports the memories, rules, notes and settings of other programs."""
