"""Rank memories with pure functions that turn a query and a pool of candidates into scored hits."""
