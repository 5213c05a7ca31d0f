#!/usr/bin/env bash
# Builds the packages for Debian (CPU only; -DFLASHCORE_CUDA=ON as an argument adds the CUDA kernels), asks lintian, and
# installs, uses and removes them on a minimal Debian 12 that has none of the build's packages.
#
# usage: check_deb.sh [DIRECTORY [CMAKE ARGUMENT...]]    default build-deb
#
# The packages are in DIRECTORY/packages. The last line is "deb: N passed, M failed". Exits with 77 where a separate system
# is not allowed.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
# shellcheck source=scripts/fresh_system.sh
source "$root/scripts/fresh_system.sh"
cd "$root"
directory=${1:-build-deb}
need_packages "${build_packages[@]}" "${package_packages[@]}"

say "Building the packages"
configure "$directory" -DCMAKE_BUILD_TYPE=Release -DFLASHCORE_TESTS=OFF -DCMAKE_INSTALL_PREFIX=/usr -DFLASHCORE_CUDA=OFF \
  "${@:2}"
quietly build "$directory"
rm -rf "$directory/packages"
quietly cpack --config "$directory/CPackConfig.cmake" -B "$directory/packages"
rm -rf "$directory/packages/_CPack_Packages"
version=$(sed -nE 's/^project\(flashcore VERSION ([0-9.]+).*/\1/p' CMakeLists.txt)
packages=("$directory"/packages/libflashcore[0-9]*.deb "$directory"/packages/libflashcore-dev_*.deb
          "$directory"/packages/flashcore-tools_*.deb)
library=$(dpkg-deb --field "${packages[0]}" Package)

passed=0
failed=0
check_that "lintian" quietly lintian --fail-on error,warning --suppress-tags-from-file cmake/package/lintian.txt "${packages[@]}"
make_fresh_system packages
mkdir "$system/given"
cp "${packages[@]}" tests/consumers/c/main.c "$system/given"

check_that "the library is installed with what it needs, and nothing more" quietly in_fresh_system "
  apt-get install -q -y --no-install-recommends /given/$library*.deb && ldconfig -p | grep -F libflashcore.so.${library#libflashcore} &&
  ! find / -xdev -name 'flashcore.h' | grep ."
check_that "a C program" quietly in_fresh_system "
  apt-get install -q -y --no-install-recommends /given/libflashcore-dev*.deb gcc libc6-dev pkg-config &&
  gcc -std=c11 -D_GNU_SOURCE /given/main.c -o /given/main \$(pkg-config --cflags --libs flashcore) -lm && /given/main"
check_that "the command" quietly in_fresh_system "
  apt-get install -q -y --no-install-recommends /given/flashcore-tools*.deb &&
  flashcore --version | grep -Fx 'flashcore $version' && flashcore run --shape 1,2,64,32 --causal --check --device cpu"
check_that "each package has the version of the source" quietly in_fresh_system "
  dpkg-query -W -f='\${Version}\n' $library libflashcore-dev flashcore-tools | grep -cFx $version | grep -x 3"
check_that "installed files are hardened" quietly scripts/check_hardening.py "$system/usr/bin/flashcore" \
  "$system/usr/bin/flashcore_evolve_runner" "$system"/usr/lib/*/"libflashcore.so.$version"
check_that "what is removed leaves nothing" quietly in_fresh_system "
  dpkg --purge flashcore-tools libflashcore-dev $library && ! find /usr /etc -xdev -name '*flashcore*' | grep ."
(cd "$directory/packages" && sha256sum ./*.deb && du -k ./*.deb)
rm -rf "$system"
say "deb: $passed passed, $failed failed"
((failed == 0))
