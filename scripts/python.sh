#!/usr/bin/env bash
# The Python package: builds the wheel (CPU only; the CUDA kernels are the release build's business), installs it
# into a folder of its own, and runs the linters and python/tests, in an environment that is kept in the cache folder.
#
# usage: python.sh [DIRECTORY]    default build-python
#
# The last line is "python: N passed, M failed, K skipped". Tests of PyTorch and transformers are
# skipped: torch.sh runs them.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$root"
mkdir -p "${1:-build-python}"
directory=$(cd "${1:-build-python}" && pwd)
kept_environment python python/requirements-test.txt ||
  fail "The packages of python/requirements-test.txt could not be installed; pip's last lines are above."

say "Building the wheel"
# Its build folder is as deep as the release build's, so that ccache recognises the files.
rm -rf "$directory/wheel"
PATH=$environment/bin:$PATH quietly "$python" -m pip wheel --disable-pip-version-check . --no-deps \
  --no-build-isolation --wheel-dir "$directory/wheel" --config-settings=build-dir="$directory-cmake" \
  --config-settings=cmake.define.FLASHCORE_CUDA=OFF
wheel=("$directory"/wheel/flashcore-*-py3-none-*.whl)
rm -rf "$directory/package"
quietly "$python" -m pip install --disable-pip-version-check --no-deps --target "$directory/package" "${wheel[0]}"
say "$(basename "${wheel[0]}"): $(du -k "${wheel[0]}" | cut -f1) KB"

passed=0
failed=0
check() { check_that "$*" "$@"; }
sources=(python examples/{attention_maps,context_parallel,drop_in,server,server_load,serving,train_gpt}.py)
check "$environment/bin/ruff" check --quiet "${sources[@]}"
check "$environment/bin/ruff" format --quiet --check "${sources[@]}"
check "$environment/bin/mypy" --no-error-summary --cache-dir "$directory/mypy"

# The wheel contains the package, its licence and the library, which needs only the C library and GCC's.
wheel_is_sound() {
  local names needed
  names=$(unzip_names "${wheel[0]}") || return
  grep -qx 'flashcore/py.typed' <<<"$names" && grep -q '/licenses/LICENSE$' <<<"$names" || return
  if grep -vE '^flashcore/([a-z_]+\.py|py\.typed|libflashcore\.so)$|^flashcore-[0-9.]+\.dist-info/' \
      <<<"$names"; then
    say "These do not belong into a wheel."
    return 1
  fi
  needed=$(objdump -p "$directory/package/flashcore/libflashcore.so" |
    awk '$1 == "NEEDED" {print $2}')
  if grep -vE '^(lib(c|m|dl|rt|pthread|gcc_s)|ld-linux.*)\.so' <<<"$needed"; then
    say "The wheel's library needs these, wanted the C library and GCC's alone."
    return 1
  fi
}
unzip_names() {
  "$python" -c 'import sys, zipfile; print(*zipfile.ZipFile(sys.argv[1]).namelist(), sep="\n")' "$1"
}
check wheel_is_sound

# A program outside of the package, for every Python that the wheel is for.
types_are_told() {
  local version
  for version in 3.10 3.11 3.12 3.13 3.14; do
    (cd "$directory" && MYPYPATH=$directory/package "$environment/bin/mypy" --strict --config-file= --no-error-summary \
      --follow-imports=silent --python-version "$version" --cache-dir "$directory/mypy" \
      "$root/python/tests/typed_program.py") || return
  done
}
check types_are_told

# Succeeds if the source distribution is complete, so that its build can be configured.
sdist_is_complete() {
  rm -rf "$directory/sdist"
  quietly "$python" -m build --sdist --no-isolation --outdir "$directory/sdist" . &&
    tar -C "$directory/sdist" -xzf "$directory"/sdist/flashcore-*.tar.gz --strip-components=1 &&
    quietly cmake -G Ninja -S "$directory/sdist" -B "$directory/sdist/build" -DFLASHCORE_WHEEL=ON \
      -DFLASHCORE_TESTS=OFF -DFLASHCORE_CUDA=OFF -DCMAKE_MAKE_PROGRAM="$environment/bin/ninja" &&
    quietly "$environment/bin/ninja" -C "$directory/sdist/build" -n flashcore_shared
}
check sdist_is_complete

# From another folder, without the source on the path: tests the installed package.
junit=$directory/junit.xml
rm -f "$junit"
(cd "$directory" && env -u FLASHCORE_LIBRARY PYTHONPATH="$directory/package" "$python" -P -m pytest --quiet \
  --numprocesses="$(nproc)" --timeout=300 --override-ini=cache_dir="$directory/pytest" --junitxml="$junit" \
  --rootdir="$root/python/tests" "$root/python/tests") || true
IFS=' ,' read -r _ tests _ bad _ skipped _ < <(scripts/count_pytest.py python "$junit" || true)
passed=$((passed + tests))
failed=$((failed + bad))
say "python: $passed passed, $failed failed, $skipped skipped"
((failed == 0))
