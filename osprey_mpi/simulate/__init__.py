"""Run the protocol's state machines in one process, in simulated time, from a seed."""
