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
build "$root/build" cli/flashcore
report_cuda "$root/build"

if (($# > 0)); then
  exec "$root/build/cli/flashcore" "$@"
fi
cd "$root"
say ''
say '$ flashcore run examples/gqa_causal.safetensors --check'
exec build/cli/flashcore run examples/gqa_causal.safetensors --check
