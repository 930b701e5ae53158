"""Replay: what was recorded goes through the services' own cores again, and must come out the same."""
