"""Keep a run going over the loss of its launch, without MPI: start it, look at its files, start it again."""
