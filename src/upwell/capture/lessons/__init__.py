"""Lessons: what a language model writes down at the end of a session. Pure; `app/lessons.py` asks
the model and stores what passes the checks."""
