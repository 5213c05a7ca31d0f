#!/usr/bin/env bash
# Formatting, shellcheck, the arrows between rooms, rules of device code, words, and clang-tidy. The tools'
# versions are fixed, because their findings depend on it.
#
# usage: lint.sh [--changed] BUILD_DIRECTORY    a configured one, with a compile command per file and the
#                                               generated headers; --changed: clang-tidy only for files affected
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$root"
changed=()
if [[ ${1:-} == --changed ]]; then
  changed=(--changed)
  shift
fi
directory=$1
[[ -f $directory/compile_commands.json ]] ||
  fail "$directory: is not configured, wanted for clang-tidy: run ./test.sh lint"
bad=0

mapfile -t sources < <(project_files '*.c' '*.cpp' '*.h' '*.hpp' '*.cu' '*.cuh')
if ! clang-format-14 --dry-run --Werror "${sources[@]}"; then
  say "Format them with: clang-format-14 -i FILE..."
  bad=1
fi
say "clang-format: ${#sources[@]} files"

mapfile -t scripts < <(project_files '*.sh')
scripts+=(.ci/run)
shellcheck --external-sources "${scripts[@]}" || bad=1
say "shellcheck: ${#scripts[@]} files"

scripts/check_arrows.py || bad=1
scripts/check_device_code.py || bad=1
scripts/check_words.py || bad=1

if clang_is_too_old; then
  say "clang-tidy: not run, Clang 14 cannot read this system's C++ library."
else
  scripts/tidy.py "${changed[@]}" "$directory" clang-tidy-14 || bad=1
fi
exit "$bad"
