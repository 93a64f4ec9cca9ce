"""Hooks of coding agents. `client` is what a host runs: it imports nothing but the stdlib."""
