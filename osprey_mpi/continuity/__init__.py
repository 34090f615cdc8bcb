"""The continuity protocol: pure state machines that turn events into actions, at both levels of the tree."""
