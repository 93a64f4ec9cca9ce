"""Routing: which upstream gets each request, and the lists that clients see."""
