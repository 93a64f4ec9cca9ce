"""Replays past sessions of coding agents, to show what upwell would have said in them and when."""
