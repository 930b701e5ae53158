"""The fault suite: real processes, a real server and a node's files, broken one fault at a time (`make faults`)."""
