"""A proxied tool call: sent, fitted to the budget, answered."""
