"""Documentation by sections: cut, indexed, ranked, judged, and quoted as whole passages."""
