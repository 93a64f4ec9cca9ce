"""A folder of Markdown files that contains the user's memories, one in each, both ways."""
