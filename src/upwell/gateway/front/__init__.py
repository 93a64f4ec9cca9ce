"""The fronts, which serve agents on stdio and over HTTP."""
