"""Short-term notes, stored in stm.json."""
