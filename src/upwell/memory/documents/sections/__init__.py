"""Documentation, split into sections that are indexed, ranked, judged and quoted in passages."""
