"""The search: parameters as a box, a shared distribution, dives, and the flock that couples them; pure."""
