"""Proposals for memories, from commits and, with consent, from sessions. People decide which
proposals become memories.
"""
