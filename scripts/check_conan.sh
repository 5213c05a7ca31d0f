#!/usr/bin/env bash
# Creates the Conan package (CPU only) in a home of its own, without a remote, and builds and runs a program with it.
#
# usage: check_conan.sh [DIRECTORY]    default build-conan
#
# The last line is "conan: N passed, M failed".
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$root"
mkdir -p "${1:-build-conan}"
directory=$(cd "${1:-build-conan}" && pwd)
kept_environment release python/requirements-release.txt ||
  fail "The packages of python/requirements-release.txt could not be installed; pip's last lines are above."
need_packages "${build_packages[@]}"
export CONAN_HOME=$directory/home FLASHCORE_CONAN_BUILD=$directory/consumer CCACHE_BASEDIR=$directory/home
rm -rf "$directory/consumer"
quietly "$environment/bin/conan" profile detect --force
if quietly "$environment/bin/conan" create . --no-remote -o "flashcore/*:cuda=OFF" -s compiler.cppstd=20 \
     -c tools.cmake.cmaketoolchain:user_presets= --test-folder tests/consumers/cpp; then
  say "conan: 1 passed, 0 failed"
else
  say "conan: 0 passed, 1 failed"
  exit 1
fi
