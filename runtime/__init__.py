"""What all processes share and nothing of the domain: bus, streams, server, config, lifecycle, clock, health."""
