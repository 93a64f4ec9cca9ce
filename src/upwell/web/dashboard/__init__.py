"""The pages at `/dashboard`."""
