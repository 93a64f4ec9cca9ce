"""Judging candidates: pure functions from a query and a pool to scored hits."""
