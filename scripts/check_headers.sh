#!/usr/bin/env bash
# Every header compiles alone; the public ones with GCC and Clang, the C one also as C.
#
# CUDA headers (src/cuda) are compiled only where there is an nvcc.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$root"

warnings=(-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror)
includes=(-I. -Iinclude -Isrc -Ibuild/src/generated)
bad=0
checked=0

# alone HEADER COMPILER...: compiles a file that includes only that header, twice.
alone() {
  local header=$1
  shift
  checked=$((checked + 1))
  if ! printf '#include "%s"\n#include "%s"\n' "$header" "$header" |
       "$@" "${warnings[@]}" -fsyntax-only -; then
    say "$header does not compile alone with: $*"
    bad=$((bad + 1))
  fi
}

for compilers in "g++ gcc" "clang++-14 clang-14"; do
  read -r cxx c <<<"$compilers"
  command -v "$cxx" >/dev/null || continue
  alone flashcore/flashcore.hpp "$cxx" -std=c++20 -xc++ -Iinclude
  alone flashcore/flashcore.h "$cxx" -std=c++11 -xc++ -Iinclude
  alone flashcore/flashcore.h "$c" -std=c11 -xc -Wc++-compat -Iinclude
done

nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null || true)
while read -r header; do
  case $header in
    include/*) continue ;;
    src/cuda/*)
      [[ -n $nvcc ]] || continue
      checked=$((checked + 1))
      source=$(mktemp --suffix=.cu)
      printf '#include "%s"\n#include "%s"\n' "${header#src/}" "${header#src/}" >"$source"
      if ! "$nvcc" -std=c++20 --expt-relaxed-constexpr -gencode arch=compute_90a,code=sm_90a \
           "${includes[@]}" -cuda -o /dev/null "$source"; then
        say "$header does not compile alone with nvcc"
        bad=$((bad + 1))
      fi
      rm -f "$source"
      ;;
    *) alone "${header#src/}" g++ -std=c++20 -xc++ "${includes[@]}" ;;
  esac
done < <(git ls-files --cached --others --exclude-standard '*.hpp' '*.h' '*.cuh')

say "$checked headers checked, $bad do not compile alone"
((bad == 0))
