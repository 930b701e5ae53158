"""The reward and its censoring: pure functions of one cycle's messages."""
