"""Routing: the upstream of each request, and the lists that clients see."""
