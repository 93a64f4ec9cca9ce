"""Hooks of coding agents. A host runs `client`, which imports nothing but the stdlib."""
