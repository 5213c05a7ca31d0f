#!/usr/bin/env bash
# Installs what is missing, builds, and computes attention over example tensors, checked against
# the fp64 reference. A GPU is used when there is one; then, and where nvcc is found, the CUDA kernels
# are built, for the GPUs of this machine. Arguments go to `flashcore`:
#
#   ./run.sh                                  the example
#   ./run.sh info                             any other command, after building it
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/scripts/common.sh"

need_packages "${build_packages[@]}"
options=(-DCMAKE_BUILD_TYPE=Release)
if [[ ! -f $root/build/CMakeCache.txt ]]; then
  options+=(-DFLASHCORE_TESTS=OFF)
  if has_gpu; then
    options+=(-DFLASHCORE_CUDA_ARCHITECTURES=native)
  elif [[ -n $(find_nvcc) ]]; then
    options+=(-DFLASHCORE_CUDA=OFF)
    say "CUDA: there is no GPU here, so its kernels are left out. For those of another machine:"
    say "  cmake -S . -B build -DFLASHCORE_CUDA=ON && ./run.sh"
  fi
fi
configure "$root/build" "${options[@]}"
if [[ ! -x $root/build/bin/flashcore ]]; then
  if cuda_is_built "$root/build"; then
    say "Building the library and the command with CUDA kernels: on two cores about 14 minutes for one GPU."
  else
    say "Building the library and the command for the CPU: on two cores about 5 minutes."
  fi
fi
build "$root/build" flashcore_command flashcore_shared
report_cuda "$root/build"
flashcore=$root/build/bin/flashcore

if (($# > 0)); then
  exec "$flashcore" "$@"
fi

cd "$root"
output=build/attention_output.safetensors
say ''
say "\$ flashcore run examples/attention.safetensors --causal --check --out $output"
exec "$flashcore" run examples/attention.safetensors --causal --check --out "$output"
