"""Proposals of memories: from commits and, with consent, from sessions. People keep them."""
