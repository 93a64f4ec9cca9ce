"""Replays past sessions of coding agents: shows what upwell would have said in them, and when."""
