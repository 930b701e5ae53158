"""The actuator's decisions: which pod gets which weight, whose write a value is, what restoring means. Pure."""
