#!/usr/bin/env bash
# Runs the README's two commands on a minimal Debian 12, to prove that the lists of packages are
# complete. Objects come from this user's ccache, unless --scratch is given.
#
# usage: fresh.sh [--scratch]
#
# The last line is "fresh: N passed, M failed, K skipped". Exits with 77 if a separate system is not allowed.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
# shellcheck source=scripts/fresh_system.sh
source "$root/scripts/fresh_system.sh"
cd "$root"

compiled=${CCACHE_DIR:-$HOME/.cache/ccache}
if [[ ${1:-} == --scratch ]]; then
  compiled=$(mktemp -d)
  trap 'rm -rf "$compiled"' EXIT
fi
make_fresh_system system
mkdir -p "$system/project" "$compiled"
project_files '*' | tar -c -T - | tar -x -C "$system/project"
cp -r .ci .clang-format .clang-tidy "$system/project/"

log=$(mktemp)
in_fresh_system "cd /project && export CCACHE_DIR=/ccache && ./run.sh && ./test.sh" "$compiled" /ccache >"$log" 2>&1 || true
if ! IFS=' ,' read -r good _ bad _ left_out _ < <(tail -n 1 "$log" | grep -E '^[0-9]+ passed, '); then
  tail -n 60 "$log"
  say "fresh: 0 passed, 1 failed, 0 skipped"
  exit 1
fi
grep -E '^(FAILED|Seconds)' "$log" || true
rm -f "$log"
say "fresh: $good passed, $bad failed, $left_out skipped"
((bad == 0))
