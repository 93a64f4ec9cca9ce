"""The pipeline that decides whether to show an agent some memories. A cue (a prompt, a tool call …)
goes in; a surfacing (the text with the memories) or a skip (the reason for silence) comes out."""
