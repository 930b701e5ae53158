"""The guard's rules: pure functions of what was seen and what is proposed. No clock, no bus, no files."""
