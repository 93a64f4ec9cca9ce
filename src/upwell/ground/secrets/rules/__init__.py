"""Rule files: data, with their licences."""
