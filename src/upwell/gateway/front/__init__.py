"""The fronts: agents on stdio and over HTTP."""
