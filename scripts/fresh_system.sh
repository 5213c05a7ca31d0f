# A minimal Debian 12 of its own, for programs that prove what they need. Sourced after common.sh by scripts that exit
# with 77 where a separate system is not allowed.
# shellcheck shell=bash

not_here() { say "Not run: $*"; exit 77; }

# make_fresh_system NAME: sets `system`, a new copy of the minimal system, which is created once, in the cache folder.
make_fresh_system() {
  local cache=${XDG_CACHE_HOME:-$HOME/.cache}/flashcore/fresh mirror
  ((EUID == 0)) || not_here "only root may change into another system."
  (need_packages debootstrap) || not_here "debootstrap is not here."
  unshare --mount mount --bind /dev /mnt 2>/dev/null || not_here "mounts are not allowed here."
  if [[ ! -f $cache/base/made ]]; then
    # Not every machine has both of these.
    mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null |
      sed -nE 's/^(URIs: *|deb )(http[^ ]+).*/\2/p' | head -n 1) || true
    rm -rf "$cache/base"
    mkdir -p "$cache"
    quietly debootstrap --variant=minbase bookworm "$cache/base" ${mirror:+"$mirror"} ||
      not_here "debootstrap could not make a system."
    # This machine's configuration for reaching its packages.
    cp -rL /etc/apt/sources.list* /etc/apt/apt.conf.d "$cache/base/etc/apt/"
    cp -rL /usr/share/keyrings "$cache/base/usr/share/"
    cp -rL /etc/ssl/certs "$cache/base/etc/ssl/"
    touch "$cache/base/made"
  fi
  system=$cache/$1
  rm -rf "$system"
  cp -a "$cache/base" "$system"
  cp -L /etc/resolv.conf /etc/hosts "$system/etc/"
  # A copy, for installing certificates there makes the bundle again.
  cp -L /etc/ssl/certs/ca-certificates.crt "$system/etc/this-machines-certificates.crt"
  chroot "$system" true || not_here "chroot is not allowed here."
  quietly chroot "$system" apt-get update -q || not_here "the minimal system reaches no packages."
}

# in_fresh_system COMMAND [FOLDER PLACE]...: a shell's command line in `system`, with folders of this machine mounted.
in_fresh_system() {
  local command=$1 name folder pip=()
  shift
  # pip finds its packages there as it does here: by its variables, and in this machine's folders that they name.
  for name in $(compgen -e PIP_); do
    [[ $name == PIP_CERT ]] || pip+=("$name=${!name}")
  done
  for folder in ${PIP_FIND_LINKS:-}; do
    folder=${folder#file://}
    [[ $folder != /* || ! -d $folder ]] || set -- "$@" "$folder" "$folder"
  done
  # shellcheck disable=SC2016
  unshare --mount bash -c '
    set -euo pipefail
    mount --rbind /proc "$0/proc"
    mount --rbind /dev "$0/dev"
    for ((left = $2; left > 0; left -= 2)); do
      mkdir -p "$0$4"
      mount --bind "$3" "$0$4"
      set -- "$1" "$2" "${@:5}"
    done
    exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
      DEBIAN_FRONTEND=noninteractive ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} \
      "${@:3}" PIP_CERT=/etc/this-machines-certificates.crt chroot "$0" sh -c "$1"
  ' "$system" "$command" "$#" "$@" "${pip[@]}"
}
