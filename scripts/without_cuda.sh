#!/usr/bin/env bash
# Runs a command as on a machine without the CUDA toolkit. In a new mount namespace an empty folder
# is mounted over every toolkit, so that links into it dangle, and the variables that name one are
# unset. Fails with a message if that is not allowed or does not hide it.
#
# usage: without_cuda.sh COMMAND [ARGUMENT...]
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

mapfile -t toolkits < <(
  for folder in /usr/local/cuda* /opt/cuda* "${CUDA_HOME:-}" "${CUDA_PATH:-}"; do
    [[ ! -x $folder/bin/nvcc ]] || readlink -f "$folder"
  done | sort -u)
mapfile -t programs < <(type -ap nvcc || true)
for program in "${programs[@]}"; do
  program=$(readlink -f "$program")
  # A toolkit's own program is hidden with it; any other, such as a wrapper script, is hidden separately.
  [[ " ${toolkits[*]/%//bin/nvcc} " == *" $program "* ]] || toolkits+=("$program")
done

namespace=(unshare --mount)
((EUID == 0)) || namespace+=(--map-root-user)
"${namespace[@]}" true 2>/dev/null || fail "without_cuda.sh: mount namespaces are not allowed here"

unset CUDA_HOME CUDA_PATH CUDA_ROOT CUDACXX CUDAToolkit_ROOT CPATH LIBRARY_PATH LD_LIBRARY_PATH
empty=$(mktemp -d)
trap 'rmdir "$empty"' EXIT
# shellcheck disable=SC2016
"${namespace[@]}" bash -c '
  set -euo pipefail
  source "$0/scripts/common.sh"
  empty=$1 count=$2
  shift 2
  for one in "${@:1:count}"; do
    if [[ -d $one ]]; then mount --bind "$empty" "$one"; else mount --bind /dev/null "$one"; fi
  done
  shift "$count"
  [[ -z $(find_nvcc) ]] || fail "without_cuda.sh: there is still $(find_nvcc)"
  ! echo "#include <cuda_runtime_api.h>" | g++ -E -xc++ - >/dev/null 2>&1 ||
    fail "without_cuda.sh: the compiler still finds cuda_runtime_api.h"
  "$@"' "$root" "$empty" "${#toolkits[@]}" "${toolkits[@]}" "$@"
