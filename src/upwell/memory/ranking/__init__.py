"""Ranking: pure functions from a query and a pool of candidates to scored hits."""
