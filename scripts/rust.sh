#!/usr/bin/env bash
# The Rust crates, with both compilers of the distribution: its default one, and the newest that it
# has (rustc-web on Debian 12, which cannot be installed at the same time and is unpacked instead).
# Builds and installs the library (CPU only), runs formatter, linter, tests and examples, packs the
# crates, and builds a program outside of the tree with them, against the installed library and from
# the packed sources.
#
# usage: rust.sh [DIRECTORY]    default build-rust
#
# The last line is "rust: N passed, M failed". Uses no crate registry.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$root"
mkdir -p "${1:-build-rust}"
directory=$(cd "${1:-build-rust}" && pwd)
# With these versions every warning is an error; others may have more warnings.
strict_versions='^clippy 0\.1\.(63|96)( |$)'

# The distribution's tools, not rustup's; without the user's settings and caches.
export PATH=/usr/bin:$PATH CARGO_HOME=$directory/cargo-home CARGO_NET_OFFLINE=true
unset RUSTC RUSTFLAGS RUSTUP_TOOLCHAIN FLASHCORE_DIR FLASHCORE_LINK FLASHCORE_NO_PKG_CONFIG
unset FLASHCORE_KERNEL FLASHCORE_CMAKE_ARGS CARGO_TARGET_DIR CARGO_BUILD_TARGET PKG_CONFIG_LIBDIR
export CARGO_TERM_COLOR=never

passed=0
failed=0
check() { check_that "$*" quietly "$@"; }
check_aloud() { check_that "$*" "$@"; }

# run_tests COMMAND...: runs `cargo test`; counts the tests, and a failure of the command.
run_tests() {
  local log status=0 good bad
  log=$(mktemp)
  "$@" >"$log" 2>&1 || status=$?
  # "test result: ok. 13 passed; 0 failed; ..."
  read -r good bad < <(awk '/^test result: / {good += $4; bad += $6} END {print good + 0, bad + 0}' "$log")
  if ((status != 0 || good == 0)); then
    ((bad > 0)) || bad=1
    grep -vE '^test .* ok$' "$log" | tail -n 100
    say "FAILED: $*"
  fi
  passed=$((passed + good))
  failed=$((failed + bad))
  say "$good of $((good + bad)) tests passed"
  rm -f "$log"
}

# The newest toolchain, unpacked to $directory/newest; downloads nothing if it is already there.
newest_packages=(rustc-web cargo-web rust-web-clippy libstd-rust-web-dev)
unpack_newest() {
  local newest=$directory/newest wanted package
  command -v apt-get >/dev/null || return 1
  # The packages that apt would install, including dependencies: "Inst NAME (VERSION ..."
  mapfile -t wanted < <(apt-get -s --no-install-recommends install "${newest_packages[@]}" \
    2>/dev/null | sed -nE 's/^Inst ([^ ]+) (\[[^]]*\] )?\(([^ ]+) .*/\1=\3/p')
  if [[ -f $newest/installed ]]; then
    [[ ${#wanted[@]} == 0 || $(<"$newest/installed") == "${wanted[*]}" ]] && return 0
  fi
  ((${#wanted[@]} > 0)) || return 1
  say "Unpacking ${wanted[*]}"
  rm -rf "$newest"
  mkdir -p "$newest/packages"
  (cd "$newest/packages" && quietly apt-get download "${wanted[@]}") || return 1
  for package in "$newest"/packages/*.deb; do dpkg-deb -x "$package" "$newest"; done
  rm -rf "$newest/packages"
  printf '%s\n' "${wanted[*]}" >"$newest/installed"
}
newest() {
  local folders=("$directory"/newest/lib/*-linux-gnu "$directory"/newest/usr/lib/*-linux-gnu)
  PATH=$directory/newest/usr/bin:$PATH LD_LIBRARY_PATH=$(IFS=: && echo "${folders[*]}") "$@"
}

# -------------------------------------------------------------------------------------------------

say "Building and installing the library"
# This folder is as deep as the release build's, so that ccache recognises the files.
library=$directory-cmake
configure "$library" -DCMAKE_BUILD_TYPE=Release -DFLASHCORE_LIBRARY_ONLY=ON -DFLASHCORE_TESTS=OFF \
  -DFLASHCORE_CUDA=OFF
quietly build "$library"
prefix="$directory/installed library"
rm -rf "$prefix"
quietly cmake --install "$library" --prefix "$prefix"
pc_file=$(find "$prefix" -name flashcore.pc)
export PKG_CONFIG_PATH=${pc_file%/*}

# with_toolchain NAME PREFIX...: the steps for both compilers; PREFIX precedes each command.
with_toolchain() {
  local name=$1 strict=()
  shift
  local cargo=("$@" cargo) target=(--manifest-path rust/Cargo.toml --target-dir "$directory/$name")
  say "$("$@" rustc --version)"
  run_tests "${cargo[@]}" test "${target[@]}"
  local example
  for example in rust/flashcore/examples/*.rs; do
    check "${cargo[@]}" run --quiet "${target[@]}" --example "$(basename "$example" .rs)"
  done
  if [[ $("${cargo[@]}" clippy --version) =~ $strict_versions ]]; then strict=(-D warnings); fi
  check "${cargo[@]}" clippy "${target[@]}" --all-targets -- "${strict[@]}"
}

with_toolchain rust env
check cargo fmt --manifest-path rust/Cargo.toml --all --check
if unpack_newest; then
  with_toolchain rust-newest newest
  RUSTDOCFLAGS="-D warnings" check newest cargo doc --no-deps --manifest-path rust/Cargo.toml \
    --target-dir "$directory/rust-newest"
elif apt-cache show rustc-web >/dev/null 2>&1; then
  say "FAILED: the newest compiler, rustc-web, could not be had"
  failed=$((failed + 1))
else
  say "Not run: the newest compiler, since this distribution has no rustc-web."
fi

# -------------------------------------------------------------------------------------------------

say "Packing the crates"
check scripts/rust_package.sh "$directory/package"
minor=0
if [[ -f $directory/newest/installed ]]; then
  minor=$(newest cargo --version | sed -nE 's/^cargo 1\.([0-9]+)\..*/\1/p')
fi
if ((minor >= 90)); then # older versions cannot pack crates that depend on each other
  # Packs both as for a registry, unpacks and builds them.
  rm -rf "$CARGO_HOME/registry" "$directory/rust-packed" # otherwise Cargo reuses the version that it knows
  check newest cargo package --workspace --allow-dirty \
    --manifest-path "$directory/package/crates/Cargo.toml" --target-dir "$directory/rust-packed"
fi

# Builds the program outside of the tree, and the pages' programs, with the packed crates.
consumer=$directory/consumer
rm -rf "$consumer"
cp -r tests/consumers/rust "$consumer"
mkdir -p "$consumer/.cargo" "$consumer/src/bin"
cat >"$consumer/.cargo/config.toml" <<TOML
[source.crates-io]
replace-with = "packed"
[source.packed]
directory = "$directory/package/registry"
TOML
python3 - "$consumer/src/bin" <<'PYTHON'
import pathlib
import re
import sys

for page in (pathlib.Path("rust/flashcore/README.md"), pathlib.Path("docs/rust.md")):
    blocks = re.findall(r"^```rust\n(.*?)^```$", page.read_text(), re.S | re.M)
    assert blocks, f"{page}: wanted an example in Rust"
    for number, text in enumerate(blocks):
        (pathlib.Path(sys.argv[1]) / f"{page.stem.lower()}{number}.rs").write_text(text)
PYTHON

# consumer_says WANTED PROGRAM
consumer_says() {
  local said
  said=$("$2")
  [[ $said == "$1 "* ]] && return
  say "$2: says '$said', wanted '$1 ...'"
  return 1
}

say "A program outside the tree, against the installed library"
in_consumer() { (cd "$consumer" && "$@"); }
# A build from scratch; counts CPU time, which other work here does not change.
installed_build() {
  local TIMEFORMAT='%U %S' user system
  rm -rf "$consumer/target"
  { time in_consumer cargo build --bin consumer >"$directory/consumer.log" 2>&1; } \
    2>"$directory/consumer.time" || { tail -n 40 "$directory/consumer.log"; return 1; }
  read -r user system <"$directory/consumer.time"
  say "built in $user s + $system s of processor time, wanted less than 10 s"
  awk "BEGIN {exit !($user + $system < 10)}"
}
check_aloud installed_build
check_aloud consumer_says pkg-config "$consumer/target/debug/consumer"
for source in "$consumer"/src/bin/*.rs; do
  check in_consumer cargo run --bin "$(basename "$source" .rs)"
done

say "... by FLASHCORE_DIR, and linked dynamically"
export FLASHCORE_NO_PKG_CONFIG=1
dynamic=(env FLASHCORE_LINK=dynamic FLASHCORE_DIR="$prefix")
check in_consumer "${dynamic[@]}" cargo build --bin consumer
needs_the_library() {
  [[ $(objdump -p "$consumer/target/debug/consumer") =~ NEEDED\ +libflashcore\.so ]]
}
check_aloud needs_the_library
LD_LIBRARY_PATH=$(dirname "$(dirname "$pc_file")") check_aloud \
  consumer_says FLASHCORE_DIR "$consumer/target/debug/consumer"

say "... and without one that fits"
# refused WANTED...: the build must fail, with each of these messages.
refused() {
  local said status=0 wanted
  said=$(in_consumer cargo build --bin consumer 2>&1) || status=$?
  for wanted in "there is no FlashCore library to link" "the feature \`vendored\`" "$@"; do
    [[ $status != 0 && $said == *"$wanted"* ]] && continue
    say "$said" "wanted: $wanted"
    return 1
  done
}
check_aloud refused "FLASHCORE_DIR: is not set" "FLASHCORE_NO_PKG_CONFIG is set"
FLASHCORE_DIR=$consumer check_aloud refused "$consumer has no lib/pkgconfig/flashcore.pc"
mkdir -p "$directory/later/lib/pkgconfig"
sed 's/^Version: .*/Version: 0.9.0/' "$pc_file" >"$directory/later/lib/pkgconfig/flashcore.pc"
FLASHCORE_DIR=$directory/later check_aloud refused "is version 0.9.0, wanted 0."

say "... from the sources in the crate"
check in_consumer cargo build --bin consumer --features vendored
check_aloud consumer_says vendored "$consumer/target/debug/consumer"

say "rust: $passed passed, $failed failed"
((failed == 0))
