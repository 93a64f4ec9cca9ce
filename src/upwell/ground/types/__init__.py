"""The values that flow between packages: frozen records, one module per subject."""
