"""Explaining: one cycle told from its messages, and from the policies as they were."""
