"""SQLite files: opening, migrating, backing up, and salvaging the readable rows of damaged ones."""
