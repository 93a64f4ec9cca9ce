"""SQLite files: opening, migrating, backing up, and salvaging what a damaged one still holds."""
