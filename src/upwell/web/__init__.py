"""What is served over HTTP, behind one guard."""
