"""The lowest floor: shared types, errors, storage and text functions. Imports nothing above it."""
