#!/usr/bin/env bash
# Every header compiles alone; the public ones with GCC and Clang, the C one also as C.
#
# CUDA headers (src/cuda) are compiled only where there is an nvcc.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$root"

# shellcheck disable=SC2317
# alone HEADER COMPILER...: compiles a file that includes only that header, twice.
alone() {
  local header=$1 source status=0
  shift
  source=$(mktemp --suffix="$([[ $1 == *nvcc ]] && echo .cu || echo .txt)")
  printf '#include "%s"\n#include "%s"\n' "$header" "$header" >"$source"
  "$@" "$source" || status=1
  rm -f "$source"
  ((status == 0)) || say "$header does not compile alone with: $*"
  return "$status"
}
export -f alone say

host="-fsyntax-only -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror"
ours="-I. -Iinclude -Isrc -Ibuild/src/generated"
simd="-Wno-unknown-pragmas -O1"
avx2="-DFLASHCORE_SIMD_TARGET=HWY_AVX2 -DFLASHCORE_SIMD_NAMESPACE=avx2"
amx='-include immintrin.h -DFLASHCORE_SIMD_TARGET=HWY_AVX3 -DFLASHCORE_SIMD_NAMESPACE=amx'
amx+=' -DFLASHCORE_SIMD_BF16 -DFLASHCORE_SIMD_AMX'
amx+=' -DFLASHCORE_SIMD_EXTRA=",avx512bf16,amx-tile,amx-bf16"'
checks=()
for compilers in "g++ gcc" "clang++-14 clang-14"; do
  read -r cxx c <<<"$compilers"
  command -v "$cxx" >/dev/null || continue
  checks+=("flashcore/flashcore.hpp $cxx -std=c++20 $host -Iinclude -xc++"
           "flashcore/flashcore.h $cxx -std=c++11 $host -Iinclude -xc++"
           "flashcore/flashcore.h $c -std=c11 $host -Wc++-compat -Iinclude -xc")
done

nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null || true)
while read -r header; do
  case $header in
    include/*) ;;
    # Device code is all in templates and inline functions: the front end alone sees it.
    src/cuda/* | *.cuh)
      [[ -z $nvcc ]] || checks+=("${header#src/} $nvcc -std=c++20 --expt-relaxed-constexpr \
-gencode arch=compute_90a,code=sm_90a $ours --cuda -o /dev/null") ;;
    # Parts of the SIMD kernels: compiled for an instruction set, as src/cpu/simd/forward_*.cpp do.
    *amx-inl.hpp) checks+=("${header#src/} g++ -std=c++20 $host $ours $simd $amx -xc++") ;;
    *-inl.hpp) checks+=("${header#src/} g++ -std=c++20 $host $ours $simd $avx2 -xc++") ;;
    bench/peers/cudnn_graph.hpp)  # where the compiler finds cuDNN's headers
      ! g++ -E -xc++ - <<<'#include <cudnn_graph.h>' >/dev/null 2>&1 ||
        checks+=("$header g++ -std=c++20 $host $ours -xc++") ;;
    *) checks+=("${header#src/} g++ -std=c++20 $host $ours -xc++") ;;
  esac
done < <(project_files '*.hpp' '*.h' '*.cuh')

bad=0
# shellcheck disable=SC2016
printf '%s\n' "${checks[@]}" | xargs -d '\n' -P "$(nproc)" -I{} bash -c 'alone $1' alone {} || bad=1
say "${#checks[@]} headers and compilers"
exit "$bad"
