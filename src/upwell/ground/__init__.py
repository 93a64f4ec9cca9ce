"""Floor 1: the words and tools of the house. Imports nothing of ours from above."""
