"""Proposals of memories: from commits and, with consent, from sessions. People decide which ones
become memories, except for those that `capture.accept` selects.
"""
