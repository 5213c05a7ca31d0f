#!/usr/bin/env bash
# Installs what is missing, builds, and computes attention over example tensors, checked against
# the fp64 reference. A GPU is used when there is one. Arguments go to `flashcore`:
#
#   ./run.sh                                  the example
#   ./run.sh info                             any other command, after building it
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/scripts/common.sh"

need_packages "${build_packages[@]}"
options=(-DCMAKE_BUILD_TYPE=Release)
[[ -f $root/build/CMakeCache.txt ]] || options+=(-DFLASHCORE_TESTS=OFF)
configure "$root/build" "${options[@]}"
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
