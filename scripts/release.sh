#!/usr/bin/env bash
# Makes a release and stops before it is published: runs every check, builds the artefacts and their checksums into out/.
#
# usage: release.sh [--trial]    --trial: no checks, and of any tree, to see what the artefacts are
#
# The version is the one of CMakeLists.txt, and CHANGELOG.md has its day. With nvcc the artefacts have the CUDA kernels.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$root"
version=$(sed -nE 's/^project\(flashcore VERSION ([0-9.]+).*/\1/p' CMakeLists.txt)

if [[ ${1:-} != --trial ]]; then
  [[ -z $(git status --porcelain) ]] || fail "The tree has changes that no commit has."
  grep -qE "^## $version, [0-9]{4}-[0-9]{2}-[0-9]{2}$" CHANGELOG.md ||
    fail "CHANGELOG.md: has no line '## $version, YEAR-MONTH-DAY'"
  ./test.sh --long
fi

out=$root/out/flashcore-$version
rm -rf "$out"
mkdir -p "$out"
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
cuda=OFF
if [[ -n $(find_nvcc) && ${1:-} != --trial ]]; then cuda=ON; fi

git archive --prefix="flashcore-$version/" HEAD | gzip -9n >"$out/flashcore-$version-source.tar.gz"
scripts/wheel.sh build-release-wheel "FLASHCORE_CUDA=$cuda"
scripts/check_deb.sh build-release-deb "-DFLASHCORE_CUDA=$cuda"
scripts/rust_package.sh build-release-crates
for crate in build-release-crates/registry/*; do
  tar -C "${crate%/*}" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -c "${crate##*/}" |
    gzip -9n >"$out/${crate##*/}.crate"
done
cp build-release-wheel/made/* build-release-deb/packages/*.deb "$out"
(cd "$out" && sha256sum -- * >SHA256SUMS && cat SHA256SUMS && du -k -- *)
say "Nothing was published. Test $out on another machine, tag the commit v$version, and upload."
