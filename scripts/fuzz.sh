#!/usr/bin/env bash
# Runs every fuzzer of a build for a limited time, as many in parallel as there are cores.
# Interesting inputs are kept in the build; a failing input is printed, and kept there, too.
#
# usage: fuzz.sh BUILD_DIRECTORY [SECONDS]    seconds per fuzzer, default 30
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$root"
directory=$1
export seconds=${2:-30} directory

fuzz_one() {
  local program=$1 name corpus
  name=$(basename "$program")
  corpus=$directory/corpus/$name
  mkdir -p "$corpus"
  local seeds=()
  [[ -d tests/fuzz/corpus/$name ]] && seeds=("tests/fuzz/corpus/$name")
  if "$program" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=4096 -malloc_limit_mb=2048 \
       -print_final_stats=1 -artifact_prefix="$corpus/" "$corpus" "${seeds[@]}" \
       >"$directory/$name.log" 2>&1; then
    say "$name: $(sed -n 's/^stat::number_of_executed_units: //p' "$directory/$name.log") inputs"
  else
    tail -n 40 "$directory/$name.log"
    say "$name: failed"
    return 1
  fi
}
export -f fuzz_one say

mapfile -t programs < <(find "$directory/tests/fuzz" -maxdepth 1 -name '*_fuzz' -type f | sort)
((${#programs[@]} > 0)) || fail "There is no fuzzer in $directory."
# shellcheck disable=SC2016
printf '%s\n' "${programs[@]}" | xargs -P "$(nproc)" -I{} bash -c 'fuzz_one "$1"' fuzz_one {}
