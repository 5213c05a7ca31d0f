#!/usr/bin/env bash
# The tests of python/tests that want PyTorch and transformers, over the wheel that python.sh made. They come from
# PyPI into an environment that is kept in the cache folder, about 6 GB, for PyPI's wheel of PyTorch brings the CUDA
# libraries along.
#
# usage: torch.sh WHEEL_DIRECTORY [DIRECTORY]    default build-torch
#
# The last line is "torch: N passed, M failed, K skipped". Exits with 77 where the packages cannot be had.
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
# What is tested is what is installed: the package lies in a folder of its own, before that of the environment.
rm -rf "$directory/package"
quietly "$python" -m pip install --disable-pip-version-check --no-deps --target "$directory/package" "${wheels[0]}"

mapfile -t tests < <(grep -l 'torch\|transformers' python/tests/test_*.py)
junit=$directory/junit.xml
rm -f "$junit"
(cd "$directory" && env -u FLASHCORE_LIBRARY PYTHONPATH="$directory/package" "$python" -P -m pytest --quiet \
  --numprocesses="$(nproc)" --timeout=600 --override-ini=cache_dir="$directory/pytest" --junitxml="$junit" \
  --rootdir="$root/python/tests" "${tests[@]/#/$root/}") || true
"$python" scripts/count_pytest.py torch "$junit"
