"""Everything served over HTTP, behind one guard."""
