"""The values that flow between packages: frozen dataclasses, one module per subject."""
