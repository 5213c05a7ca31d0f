#!/usr/bin/env bash
# The tests of python/tests that need PyTorch and transformers, with python.sh's wheel. The packages
# come from PyPI into an environment in the cache folder, about 6 GB, because PyPI's wheel of
# PyTorch includes the CUDA libraries.
#
# usage: torch.sh WHEEL_DIRECTORY [DIRECTORY]    default build-torch
#
# The last line is "torch: N passed, M failed, K skipped". Exits with 77 if the packages are not available.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$root"
mkdir -p "${2:-build-torch}"
directory=$(cd "${2:-build-torch}" && pwd)
requirements=(python/requirements-test.txt python/requirements-torch.txt)
wheels=("$1"/flashcore-*-py3-none-*.whl)
[[ -f ${wheels[0]} ]] || fail "$1: has no wheel of FlashCore, wanted that of scripts/python.sh"

if ! kept_environment torch "${requirements[@]}"; then
  say "Not run: the packages of ${requirements[*]} could not be installed."
  exit 77
fi
# Tests the installed package: it has its own folder, before the environment's in the path.
rm -rf "$directory/package"
quietly "$python" -m pip install --disable-pip-version-check --no-deps --target "$directory/package" "${wheels[0]}"

mapfile -t tests < <(grep -l 'torch\|transformers' python/tests/test_*.py)
junit=$directory/junit.xml
rm -f "$junit"
(cd "$directory" && env -u FLASHCORE_LIBRARY PYTHONPATH="$directory/package" "$python" -P -m pytest --quiet \
  --numprocesses="$(nproc)" --timeout=600 --override-ini=cache_dir="$directory/pytest" --junitxml="$junit" \
  --rootdir="$root/python/tests" "${tests[@]/#/$root/}") || true
"$python" scripts/count_pytest.py torch "$junit"
