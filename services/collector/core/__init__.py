"""From raw readings to a state: pure. No files, no sockets, no clock."""
