"""Recordings of the bus: what the streams kept, in one file that shows every damage and every gap."""
