"""Hooks of coding agents. A host runs `client`, which is small and needs only the stdlib."""
