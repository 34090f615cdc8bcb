"""The edge to MPI: start-up, the communicator tree, the channel. The only importers of mpi4py."""
