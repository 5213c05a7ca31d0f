# Shell pieces that the commands share. Sourced, never run; the caller has set `set -euo pipefail`.
# shellcheck shell=bash disable=SC2034

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# Stages compile the same files in folders of their own: with these, ccache knows them again.
export CCACHE_BASEDIR=${CCACHE_BASEDIR:-$root} CCACHE_NOHASHDIR=1
# Without a terminal the apt and ninja output stays plain.
export DEBIAN_FRONTEND=noninteractive

# What each part needs, by its name in Debian 12 and Ubuntu 24.04.
build_packages=(g++ cmake ninja-build ccache libfmt-dev libcli11-dev nlohmann-json3-dev libhwy-dev libsqlite3-dev
                python3)
test_packages=(pkg-config libgtest-dev libgmock-dev binutils abigail-tools python3-venv python3-jsonschema)
lint_packages=(shellcheck clang-14 clang-format-14 clang-tidy-14 libclang-rt-14-dev)
package_packages=(dpkg-dev lintian binutils debootstrap)
rust_packages=(cargo rustc rustfmt rust-clippy)

say() { printf '%s\n' "$*"; }
fail() { printf '%s\n' "$*" >&2; exit 1; }

installed() { dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q 'ok installed'; }

# project_files NAME...: our files of these names (globs), without what was built. Needs no git.
project_files() {
  local tests=() name
  for name in "$@"; do tests+=(-o -name "$name"); done
  (cd "$root" && find . \( -path './build*' -o -path './.[!.]*' -o -path ./out \) -prune -o \
    -type f \( "${tests[@]:1}" \) -printf '%P\n' | sort)
}

# need_packages NAME...: installs those that are missing. No network is used when none is.
need_packages() {
  [[ ${FLASHCORE_SKIP_PACKAGES:-} == 1 ]] && return
  { command -v dpkg-query && command -v apt-get; } >/dev/null || fail "This script installs packages with apt, which is not here. Install what corresponds to:
  $*
and start it again as FLASHCORE_SKIP_PACKAGES=1 $0"
  local missing=() name
  for name in "$@"; do installed "$name" || missing+=("$name"); done
  ((${#missing[@]} == 0)) && return
  local as_root=()
  if ((EUID != 0)); then
    command -v sudo >/dev/null || fail "Packages are missing and you are neither root nor have sudo. Ask for:
  apt-get install ${missing[*]}"
    as_root=(sudo)
  fi
  say "Installing ${missing[*]}"
  local log
  log=$(mktemp)
  if ! { "${as_root[@]}" apt-get update -q &&
         "${as_root[@]}" apt-get install -q -y --no-install-recommends "${missing[@]}"; } \
       >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    fail "apt-get could not install ${missing[*]}; its last lines are above, all of them in $log"
  fi
  rm -f "$log"
}

# Compilations at once: one a core, and 2 GiB of memory for each.
job_count() {
  local cores memory_gib
  cores=$(nproc)
  memory_gib=$(awk '/^MemAvailable/ {print int($2 / 1048576)}' /proc/meminfo)
  local by_memory=$((memory_gib / 2))
  ((by_memory >= 1)) || by_memory=1
  echo $((cores < by_memory ? cores : by_memory))
}

# quietly COMMAND...: shows what it printed only when it fails, or when VERBOSE=1.
quietly() {
  [[ ${VERBOSE:-} == 1 ]] && { "$@"; return; }
  local log status=0
  log=$(mktemp)
  "$@" >"$log" 2>&1 || status=$?
  ((status == 0)) || tail -n 60 "$log" >&2
  rm -f "$log"
  return "$status"
}

# configure DIRECTORY [CMAKE ARGUMENT...]
configure() {
  local directory=$1
  shift
  quietly cmake -S "$root" -B "$directory" -G Ninja "$@"
}

# build DIRECTORY [TARGET...]: all targets when none is named.
build() {
  local directory=$1
  shift
  local targets=()
  (($# == 0)) || targets=(--target "$@")
  cmake --build "$directory" -j "$(job_count)" "${targets[@]}"
}

# check_that TEXT COMMAND...: counts the command in `passed` or `failed`, and says TEXT if it fails.
check_that() {
  local text=$1
  shift
  if "$@"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    say "FAILED: $text"
  fi
}

# kept_environment NAME REQUIREMENTS...: sets `environment` and `python`, a Python environment with the packages of
# these files that is kept in the user's cache folder. Nothing is fetched when they have not changed.
kept_environment() {
  local name=$1
  shift
  environment=${XDG_CACHE_HOME:-$HOME/.cache}/flashcore/$name/$(python3 --version | cat - "$@" | sha256sum | cut -c1-16)
  python=$environment/bin/python
  [[ ! -f $environment/installed ]] || return 0
  rm -rf "$environment"
  mkdir -p "${environment%/*}"
  python3 -m venv "$environment" &&
    quietly timeout 1200 "$python" -m pip install --disable-pip-version-check --no-cache-dir \
      "${@/#/--requirement=}" &&
    touch "$environment/installed"
}

# The path of nvcc, or nothing.
find_nvcc() {
  local one
  for one in "$(command -v nvcc)" /usr/local/cuda/bin/nvcc; do
    # bash names a file that cannot be run where there is no other.
    if [[ -x $one ]]; then
      echo "$one"
      return
    fi
  done
}

# Succeeds if Clang 14 is there and cannot read this system's C++ library, such as GCC 13's (<chrono>).
clang_is_too_old() {
  command -v clang++-14 >/dev/null &&
    ! clang++-14 -std=c++20 -fsyntax-only -xc++ - <<<'#include <chrono>' 2>/dev/null
}
has_clang() { command -v clang++-14 >/dev/null && ! clang_is_too_old; }

# cuda_is_built DIRECTORY: whether a configured build has the CUDA kernels.
cuda_is_built() { grep -q '^FLASHCORE_HAS_CUDA_CACHED:INTERNAL=ON' "$1/CMakeCache.txt"; }

has_gpu() { command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q '^GPU '; }

# Says whether the CUDA kernels are in a configured build, and whether there is a GPU for them.
report_cuda() {
  if cuda_is_built "$1"; then
    say "CUDA: nvcc was found, so the CUDA kernels are built."
    has_gpu || say "CUDA: there is no GPU here, so the CPU is used."
  else
    local reason
    reason=$(sed -n 's/^FLASHCORE_CUDA_REASON_CACHED:INTERNAL=//p' "$1/CMakeCache.txt")
    say "CUDA: $reason, so the CUDA kernels are not built; the CPU is used."
  fi
}
