#!/usr/bin/env bash
# The Rust crates in their published form: copies rust/ to a folder, adds files from elsewhere in the
# repository (the C++ sources as flashcore-sys/vendor, the licence), and has Cargo pack both crates.
#
# usage: rust_package.sh [DIRECTORY]    default build-rust/package
#
# DIRECTORY/crates is a workspace for `cargo publish`; DIRECTORY/registry has the packed crates,
# unpacked again, as a source of crates without network. CARGO names the program.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$root"
mkdir -p "${1:-build-rust/package}"
directory=$(cd "${1:-build-rust/package}" && pwd)
cargo=${CARGO:-cargo}

# The files that a build of the library reads, with and without CUDA.
vendored=(CMakeLists.txt LICENSE cmake include src
          tools/compile_cuda.py tools/fingerprint.py tools/gpu_tables.py tools/instances.py tools/ptxas_report.py
          tools/wgmma.py)

# The version is the library's.
version=$(sed -nE 's/^project\(flashcore VERSION ([0-9.]+).*/\1/p' CMakeLists.txt)
for manifest in rust/flashcore-sys/Cargo.toml rust/flashcore/Cargo.toml; do
  grep -qx "version = \"$version\"" "$manifest" ||
    fail "$manifest: has another version than CMakeLists.txt, wanted $version"
done
grep -q "^flashcore-sys = { version = \"=$version\"" rust/flashcore/Cargo.toml ||
  fail "rust/flashcore/Cargo.toml: wants another flashcore-sys, wanted =$version"

crates=$directory/crates
rm -rf "$crates" "$directory/registry"
mkdir -p "$crates"
cp rust/*.toml "$crates"
cp -r rust/flashcore-sys rust/flashcore "$crates"
mkdir "$crates/flashcore-sys/vendor"
cp -r --parents "${vendored[@]}" "$crates/flashcore-sys/vendor"
find "$crates" -name __pycache__ -prune -exec rm -rf {} +
for crate in flashcore-sys flashcore; do cp LICENSE "$crates/$crate"; done

# `cargo package` asks the registry for a crate's dependencies, so without network `flashcore` is
# packed from its list of files.
for crate in flashcore-sys flashcore; do
  unpacked=$directory/registry/$crate-$version
  mkdir -p "$unpacked"
  (cd "$crates/$crate" && "$cargo" package --offline --allow-dirty --list) >"$directory/$crate.list"
  unlisted=$(cd "$crates/$crate" && find . -type f -printf '%P\n' | sort |
    comm -23 - <(sort "$directory/$crate.list"))
  [[ -z $unlisted ]] || fail "$crate: not part of the package: $unlisted"
  while read -r file; do
    # Cargo writes these itself.
    [[ $file == Cargo.toml.orig || $file == Cargo.lock || $file == .cargo_vcs_info.json ]] && continue
    mkdir -p "$unpacked/$(dirname "$file")"
    cp "$crates/$crate/$file" "$unpacked/$file"
  done <"$directory/$crate.list"
  sed -i 's/, path = "[^"]*"//' "$unpacked/Cargo.toml"
  echo '{"files":{}}' >"$unpacked/.cargo-checksum.json"
  say "$crate: $(wc -l <"$directory/$crate.list") files, $(du -sk "$unpacked" | cut -f1) KB"
done
