#!/usr/bin/env bash
# Builds the source distribution and the wheel twice, from two copies of this tree, and checks that the bytes are the same,
# that the wheel runs where glibc is 2.28 or later, and that it names no folder of this machine. Then installs it on a
# minimal Debian 12 without a compiler and runs the README's example there.
#
# usage: wheel.sh [DIRECTORY [DEFINE...]]    default build-wheel; definitions of CMake, as FLASHCORE_CUDA=ON
#
# The artefacts are in DIRECTORY/made. The last line is "wheel: N passed, M failed". Exits with 77 where a separate system
# is not allowed.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
# shellcheck source=scripts/fresh_system.sh
source "$root/scripts/fresh_system.sh"
cd "$root"
mkdir -p "${1:-build-wheel}"
directory=$(cd "${1:-build-wheel}" && pwd)
platform=manylinux_2_28_x86_64
most_kilobytes=$((45 << 10))  # an index takes more, and a user waits for it
kept_environment release python/requirements-release.txt ||
  fail "The packages of python/requirements-release.txt could not be installed; pip's last lines are above."
export PATH=$environment/bin:$PATH
# The day of the commit, or of this file without a checkout.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y "${BASH_SOURCE[0]}")}
export SOURCE_DATE_EPOCH

definitions=("${@:2}")
[[ " ${definitions[*]}" == *" FLASHCORE_CUDA="* ]] || definitions+=(FLASHCORE_CUDA=OFF)
# made_in FOLDER: both distributions in FOLDER/dist, of a copy of the tree in FOLDER/source.
made_in() {
  local settings=("${definitions[@]/#/--config-setting=cmake.define.}")
  rm -rf "$1"
  mkdir -p "$1/source"
  project_files '*' | tar -c -T - | tar -x -C "$1/source"
  (export CCACHE_BASEDIR=$1/source && cd "$1/source" &&
    quietly "$python" -m build --sdist --no-isolation --outdir "$1/dist" . &&
    quietly "$python" -m build --wheel --no-isolation --outdir "$1/linux" "${settings[@]}" . &&
    quietly auditwheel repair --plat "$platform" --only-plat --wheel-dir "$1/dist" "$1"/linux/*.whl)
}
say "Building twice"
made_in "$directory/one"
made_in "$directory/the_other"
rm -rf "$directory/made"
cp -r "$directory/one/dist" "$directory/made"
wheel=("$directory"/made/flashcore-*-py3-none-"$platform".whl)
mkdir "$directory/one/unpacked"
"$python" -m zipfile -e "${wheel[0]}" "$directory/one/unpacked"

passed=0
failed=0
check_that "both have the same bytes" quietly diff -r "$directory/one/dist" "$directory/the_other/dist"
check_that "auditwheel" quietly grep -F "$platform" <(auditwheel show "${wheel[0]}")
names_no_folder() { ! grep -rlaF -e "$root" -e "$directory" -e "$HOME/" "$1"; }
check_that "no folder of this machine is in it" quietly names_no_folder "$directory/one/unpacked"
is_small() { (($(du -k "$1" | cut -f1) <= most_kilobytes)); }
check_that "it is at most $most_kilobytes KB" quietly is_small "${wheel[0]}"
has_parts() {
  "$python" -c 'import json, sys
parts = json.load(open(sys.argv[1]))
assert parts["bomFormat"] == "CycloneDX" and len(parts["components"]) >= 4
assert all(part["version"] for part in parts["components"])' "$1"
}
check_that "it lists its parts" quietly has_parts "$directory"/one/unpacked/flashcore-*.dist-info/sboms/flashcore.cdx.json
check_that "it is hardened" quietly scripts/check_hardening.py "$directory/one/unpacked"

make_fresh_system wheel
mkdir "$system/given"
cp "${wheel[0]}" "$system/given"
# The README's first example with `import flashcore`, and a check of what it computes.
"$python" - >"$system/given/example.py" <<'PYTHON'
import pathlib, re
blocks = re.findall(r"^```python\n(.*?)^```$", pathlib.Path("README.md").read_text(), re.S | re.M)
print(next(block for block in blocks if "flashcore.attention(" in block))
print("""
import time
assert o.shape == (1, 8, 128, 64) and np.allclose(o[:, :, 0], q[:, :, 0], atol=1e-6)
assert time.process_time() < 0.5, f"the first result took {time.process_time()} s of the processor"
print(flashcore.__version__)""")
PYTHON
check_that "the README's example, where there is no compiler" quietly in_fresh_system "
  apt-get install -q -y --no-install-recommends python3-venv && ! command -v gcc &&
  python3 -m venv /env && /env/bin/pip install /given/*.whl && /env/bin/python /given/example.py"
rm -rf "$system"
(cd "$directory/made" && sha256sum -- * && du -k -- *)
say "wheel: $passed passed, $failed failed"
((failed == 0))
