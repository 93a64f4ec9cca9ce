"""The servers behind the gateway: starting, connecting and supervising them."""
