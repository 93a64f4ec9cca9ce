"""The data of the dashboard's pages, and what its buttons do."""
