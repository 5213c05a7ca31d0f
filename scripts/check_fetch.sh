#!/usr/bin/env bash
# Builds a program that fetches the library's source from an archive, as CMake's FetchContent does, and runs it.
#
# usage: check_fetch.sh [DIRECTORY [CMAKE ARGUMENT...]]    default build-fetch
#
# The last line is "fetch: N passed, M failed".
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$root"
directory=${1:-build-fetch}
rm -rf "$directory"
mkdir -p "$directory"
directory=$(cd "$directory" && pwd)
project_files '*' | tar -c -z --transform 's,^,flashcore/,' -f "$directory/flashcore.tar.gz" -T -
if quietly cmake -S tests/consumers/fetch -B "$directory/build" -G Ninja "-DFLASHCORE_ARCHIVE=$directory/flashcore.tar.gz" \
     -DFLASHCORE_CUDA=OFF "${@:2}" && quietly build "$directory/build" consumer && "$directory/build/consumer" &&
   [[ -z $(find "$directory/build" -name '*_test' -type f) ]]; then
  say "fetch: 1 passed, 0 failed"
else
  say "fetch: 0 passed, 1 failed"
  exit 1
fi
