"""Lossless forms: ways to shorten a text before anything is left out."""
