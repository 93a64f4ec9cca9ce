"""Proposals for memories, from commits and sessions, among which people decide; and the lessons
that a model writes about a session, with the checks that they have to pass.
"""
