"""Run the command line as `python -m osprey_mpi`."""

from osprey_mpi.cli import main

if __name__ == "__main__":
    main()
