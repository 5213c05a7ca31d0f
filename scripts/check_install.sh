#!/usr/bin/env bash
# Installs a build into an empty prefix, moves it, and builds and runs programs outside of the tree
# against it: in C with pkg-config, in C++ with find_package, each static and shared, and the
# examples of docs/cpp.md, docs/c.md and examples/. Checks the shared library's exports and dependencies.
#
# usage: check_install.sh [BUILD_DIRECTORY]    default build
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$root"
directory=${1:-build}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

quietly cmake --install "$directory" --prefix "$work/first"
mv "$work/first" "$work/moved prefix"
prefix="$work/moved prefix"
pc_file=$(find "$prefix" -name flashcore.pc)
library_dir=$(dirname "$(dirname "$pc_file")")
export PKG_CONFIG_PATH=${pc_file%/*}
# pkg-config quotes paths with spaces for the shell, so they need eval.
flags=$(pkg-config --cflags --libs flashcore)
static_flags=$(pkg-config --cflags --libs --static flashcore | sed 's/-lflashcore/-l:libflashcore.a/')
warnings='-Wall -Wextra -Wpedantic -Wc++-compat -Werror'

say "C, pkg-config"
eval "gcc -std=c11 -D_GNU_SOURCE $warnings tests/consumers/c/main.c -o '$work/c_shared' $flags -lm"
LD_LIBRARY_PATH=$library_dir "$work/c_shared"
eval "gcc -std=c11 -D_GNU_SOURCE $warnings tests/consumers/c/main.c -o '$work/c_static' $static_flags"
"$work/c_static"

say "C++, find_package"
quietly cmake -S tests/consumers/cpp -B "$work/cpp" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" \
  -DCMAKE_CXX_FLAGS="-Wall -Wextra -Wpedantic -Werror"
quietly cmake --build "$work/cpp"
"$work/cpp/consumer_static"
"$work/cpp/consumer_shared"

say "The examples of docs/cpp.md, docs/c.md and examples/"
python3 - "$work" <<'PYTHON'
import pathlib, re, sys
for page, wanted in (("README.md", set()), ("docs/cpp.md", {"cpp"}), ("docs/c.md", {"c"})):
    blocks = re.findall(r"^```(cpp|c)\n(.*?)^```$", pathlib.Path(page).read_text(), re.S | re.M)
    assert {language for language, _ in blocks} >= wanted, f"{page}: wanted an example in {wanted}"
    for number, (language, text) in enumerate(blocks):
        (pathlib.Path(sys.argv[1]) / f"{pathlib.Path(page).stem}{number}.{language}").write_text(text)
PYTHON
cp examples/*.c examples/*.cpp "$work"
rm "$work/nccl_ring.cpp"  # needs NCCL
for example in "$work"/*.c "$work"/*.cpp; do
  compiler="gcc -std=c11"
  [[ $example == *.cpp ]] && compiler="g++ -std=c++20"
  eval "$compiler -Wall -Wextra -Wpedantic -Werror '$example' -o '$example.out' $flags"
  LD_LIBRARY_PATH=$library_dir "$example.out"
done

say "Exports of the shared library"
shared=$(readlink -f "$library_dir/libflashcore.so")
mapfile -t others < <(nm -D --defined-only --demangle --without-symbol-versions "$shared" |
                        sed -n 's/^[0-9a-f]* [^A] //p' | grep -vE '^(flashcore_[a-z_]+$|flashcore::(TensorDesc::|Plan::)?[A-Za-z_]+\()' || true)
if ((${#others[@]} > 0)); then
  printf 'exported, but not of the interface: %s\n' "${others[@]}"
  exit 1
fi
say "$(basename "$shared"): $(nm -D --defined-only "$shared" | wc -l) symbols"
scripts/check_abi.py "$directory"

# Installed binaries may need only the runtimes of the language and of threads.
for binary in "$shared" "$prefix/bin/flashcore"; do
  mapfile -t others < <(objdump -p "$binary" | awk '$1 == "NEEDED" {print $2}' |
    grep -vE '^(libstdc\+\+|libm|libgcc_s|libc|libgomp|libpthread|libdl|librt|ld-linux.*)\.so' ||
    true)
  if ((${#others[@]} > 0)); then
    printf "%s needs at run time, besides the language's libraries: %s\n" \
      "$(basename "$binary")" "${others[*]}"
    exit 1
  fi
done
"$prefix/bin/flashcore" info

if grep -qx 'FLASHCORE_HARDEN:BOOL=ON' "$directory/CMakeCache.txt"; then scripts/check_hardening.py "$prefix"; fi

# A program with more rights than its user, here with nobody's, reads no variable of its user.
if ((EUID == 0)) && [[ $(findmnt -no OPTIONS -T "$work") != *nosuid* ]]; then
  chmod 755 "$work"
  install -o nobody -m 4755 "$prefix/bin/flashcore" "$work/privileged"
  export FLASHCORE_KERNEL=nonsense
  small=(run --shape '1,1,8,8' --device cpu)
  if "$prefix/bin/flashcore" "${small[@]}" >/dev/null 2>&1; then fail "FLASHCORE_KERNEL=nonsense was not read"; fi
  quietly "$work/privileged" "${small[@]}" || fail "FLASHCORE_KERNEL was read by a set-user-ID program"
  say "A set-user-ID program reads no variable"
fi
