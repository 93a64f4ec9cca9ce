"""Proxied tool calls: sending the call, fitting its result to the budget, adding memories."""
