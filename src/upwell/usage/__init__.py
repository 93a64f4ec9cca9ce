"""Usage statistics: decisions, their results, and the tokens saved."""
