"""PostgreSQL: connections, and the tables of everything that the machines of a team share."""
