#!/usr/bin/env bash
# Runs the README's two commands on a minimal Debian 12, to prove that the lists of packages are
# complete. The system is created once, in the cache folder, and each run works on a copy of it.
# Objects come from this user's ccache, unless --scratch is given.
#
# usage: fresh.sh [--scratch]
#
# The last line is "fresh: N passed, M failed, K skipped". Exits with 77 if a separate system is not allowed.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$root"

compiled=${CCACHE_DIR:-$HOME/.cache/ccache}
if [[ ${1:-} == --scratch ]]; then
  compiled=$(mktemp -d)
  trap 'rm -rf "$compiled"' EXIT
fi
cache=${XDG_CACHE_HOME:-$HOME/.cache}/flashcore/fresh
((EUID == 0)) || { say "Not run: only root may change into another system."; exit 77; }
(need_packages debootstrap) || { say "Not run: debootstrap is not here."; exit 77; }
unshare --mount mount --bind /dev /mnt 2>/dev/null || { say "Not run: mounts are not allowed here."; exit 77; }

if [[ ! -f $cache/base/made ]]; then
  # Not every machine has both of these.
  mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null |
    sed -nE 's/^(URIs: *|deb )(http[^ ]+).*/\2/p' | head -n 1) || true
  rm -rf "$cache/base"
  mkdir -p "$cache"
  quietly debootstrap --variant=minbase bookworm "$cache/base" ${mirror:+"$mirror"} ||
    { say "Not run: debootstrap could not make a system."; exit 77; }
  # This machine's configuration for reaching its packages.
  cp -rL /etc/apt/sources.list* /etc/apt/apt.conf.d "$cache/base/etc/apt/"
  cp -rL /usr/share/keyrings "$cache/base/usr/share/"
  cp -rL /etc/ssl/certs "$cache/base/etc/ssl/"
  touch "$cache/base/made"
fi
system=$cache/system
rm -rf "$system"
cp -a "$cache/base" "$system"
cp -L /etc/resolv.conf /etc/hosts "$system/etc/"
chroot "$system" true || { say "Not run: chroot is not allowed here."; exit 77; }
quietly chroot "$system" apt-get update -q || { say "Not run: the minimal system reaches no packages."; exit 77; }
mkdir -p "$system/project" "$system/ccache"
project_files '*' | tar -c -T - | tar -x -C "$system/project"
cp -r .ci .clang-format .clang-tidy "$system/project/"

mkdir -p "$compiled"
log=$(mktemp)
# pip finds its packages there as it does here: by its variables, and in this machine's folders that they name.
pip=() folders=()
for name in $(compgen -e PIP_); do
  [[ $name == PIP_CERT ]] || pip+=("$name=${!name}")
done
for folder in ${PIP_FIND_LINKS:-}; do
  folder=${folder#file://}
  [[ $folder != /* || ! -d $folder ]] || folders+=("$folder")
done
# shellcheck disable=SC2016
unshare --mount bash -c '
  set -euo pipefail
  mount --rbind /proc "$0/proc"
  mount --rbind /dev "$0/dev"
  mount --bind "$1" "$0/ccache"
  for ((left = $2; left > 0; --left)); do
    mkdir -p "$0$3"
    mount --bind -o ro "$3" "$0$3"
    shift
  done
  exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
    CCACHE_DIR=/ccache ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} \
    "${@:3}" PIP_CERT=/etc/ssl/certs/ca-certificates.crt \
    chroot "$0" sh -c "cd /project && ./run.sh && ./test.sh"
' "$system" "$compiled" "${#folders[@]}" "${folders[@]}" "${pip[@]}" >"$log" 2>&1 || true
if ! IFS=' ,' read -r good _ bad _ left_out _ < <(tail -n 1 "$log" | grep -E '^[0-9]+ passed, '); then
  tail -n 60 "$log"
  say "fresh: 0 passed, 1 failed, 0 skipped"
  exit 1
fi
grep -E '^(FAILED|Seconds)' "$log" || true
rm -f "$log"
say "fresh: $good passed, $bad failed, $left_out skipped"
((bad == 0))
