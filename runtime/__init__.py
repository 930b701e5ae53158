"""What all processes share and nothing of the domain: bus, streams, embedded server, config, lifecycle, clock, health."""
