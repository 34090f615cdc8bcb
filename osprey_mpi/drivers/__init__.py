"""Bring config, ranks, state machines and edges together: one loop for every role."""
