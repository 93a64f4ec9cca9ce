"""Search by meaning, if an embedder is configured."""
