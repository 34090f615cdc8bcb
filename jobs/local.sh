#!/bin/sh
# Run one experiment on this machine: jobs/local.sh CONFIG [N_RANKS] [osprey options]
# Site values: where Python and mpirun are. Both come from the environment that has osprey-mpi, e.g. a venv.
BIN=${BIN:-$(dirname "$(command -v osprey)")}

config=${1:?usage: jobs/local.sh CONFIG [N_RANKS] [osprey run options]}
n_ranks=${2:-$(nproc)}
shift; [ $# -gt 0 ] && shift

# Open MPI refuses more ranks than cores, and root, unless told otherwise; MPICH needs no flags.
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

exec "$BIN/mpirun" -n "$n_ranks" "$BIN/osprey" run "$config" "$@"
