#!/usr/bin/env bash
# Runs the Rust crate's tests over a library built with the address and undefined-behaviour
# sanitizers. They show that safe code stays within its slices: tests/hostile.rs passes buffers that
# end where their views end, and the sanitizer checks Rust's memory, too.
#
# usage: rust_address.sh BUILD_DIRECTORY    built with -DFLASHCORE_SANITIZE=address,undefined
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$root"
directory=$(cd "$1" && pwd)/rust
mkdir -p "$directory"

rm -rf "$directory/prefix"
quietly cmake --install "$1" --prefix "$directory/prefix"
# The distribution's tools, not rustup's; without the user's settings and caches.
export PATH=/usr/bin:$PATH CARGO_HOME=$directory/cargo-home CARGO_NET_OFFLINE=true
unset RUSTC RUSTUP_TOOLCHAIN FLASHCORE_LINK CARGO_TARGET_DIR CARGO_BUILD_TARGET FLASHCORE_KERNEL
export FLASHCORE_NO_PKG_CONFIG=1 FLASHCORE_DIR=$directory/prefix
# With an explicit target, RUSTFLAGS do not apply to build scripts.
target=$(rustc -vV | sed -n 's/^host: //p')
compiler=$(sed -n 's/^CMAKE_CXX_COMPILER:[A-Z]*=//p' "$1/CMakeCache.txt")
export RUSTFLAGS="-C linker=$compiler"
if [[ $compiler == *clang* ]]; then
  RUSTFLAGS+=" -C link-arg=-fsanitize=address,undefined" # its runtime becomes part of the program
else # rustc leaves out what -fsanitize would add, and libasan wants to be loaded first
  RUSTFLAGS+=" -C link-arg=-lasan -C link-arg=-lubsan"
  runner=CARGO_TARGET_$(tr 'a-z-' 'A-Z_' <<<"$target")_RUNNER
  export "$runner=env LD_PRELOAD=$("$compiler" -print-file-name=libasan.so)"
fi
# One test requests more memory than there is, and must get an error.
export ASAN_OPTIONS=allocator_may_return_null=1
quietly cargo test --manifest-path rust/Cargo.toml --package flashcore --tests \
  --target "$target" --target-dir "$directory/target"
