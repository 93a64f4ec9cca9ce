"""The lowest layer: shared types, errors, storage and text functions. Imports no other layer."""
