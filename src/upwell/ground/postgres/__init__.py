"""PostgreSQL: connections, and tables for the data that a team's machines share."""
