"""What a launch that does not start is told: what fits its launcher, and nothing else."""

from __future__ import annotations

import pytest

from osprey_mpi.comm.launcher import detect, late

TEXT = "MPI did not start within 120 s under {} (4 ranks): a rank may have ended, or hang, before it joined: {}"
AGAIN = "start it again"
INTERFACE = "; name the interface of your MPI (`--mpi=pmix` for Open MPI, `--mpi=pmi2` for MPICH)"
NETWORK = (
    "; where nodes have several networks choose one (Open MPI: `OMPI_MCA_btl_tcp_if_include=eth0`, MPICH: "
    "`UCX_NET_DEVICES=eth0`)"
)
OPEN_MPI = {"OMPI_COMM_WORLD_SIZE": "4"}
MPICH = {"PMI_SIZE": "4"}
SRUN = {"SLURM_NTASKS": "4"}


@pytest.mark.parametrize(
    ("environ", "name", "advice"),
    [
        ({**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, "Open MPI mpirun", AGAIN),
        ({**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, "Open MPI mpirun", AGAIN + NETWORK),
        ({**OPEN_MPI, **SRUN, "SLURM_STEP_NUM_NODES": "2"}, "Open MPI mpirun", AGAIN),
        ({**MPICH, "MPI_LOCALNRANKS": "4"}, "MPICH mpiexec", AGAIN),
        ({**MPICH, "MPI_LOCALNRANKS": "1"}, "MPICH mpiexec", AGAIN + NETWORK),
        ({**SRUN, "SLURM_STEP_NUM_NODES": "1"}, "Slurm srun", AGAIN + INTERFACE),
        ({**SRUN, "SLURM_STEP_NUM_NODES": "2"}, "Slurm srun", AGAIN + INTERFACE + NETWORK),
    ],
)
def test_advice_fits_the_launcher(environ: dict[str, str], name: str, advice: str) -> None:
    assert late(detect(environ), 120.0, environ) == TEXT.format(name, advice)
