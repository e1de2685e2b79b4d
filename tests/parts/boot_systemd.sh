#!/bin/bash
# Becomes a real systemd (the host's own) as PID 1 of a container whose root is a throw-away overlay
# of this host's root. tests/parts/systemd.py calls it, and ends it.
#
#   boot_systemd.sh FOLDER CGROUPS [OPTION OF systemd-nspawn...]
#
# CGROUPS are directories to move into first, joined by colons. There is nothing to unmount: the one
# mount of ours lives in a mount namespace that ends with us.
set -euo pipefail
folder=$1 cgroups=$2
shift 2

if [[ ${PRIVATE_MOUNTS:-} != yes ]]; then
    export PRIVATE_MOUNTS=yes
    exec unshare --mount --propagation private -- "$0" "$folder" "$cgroups" "$@"
fi

IFS=: read -ra places <<<"$cgroups"
for place in "${places[@]}"; do
    echo $$ >"$place/cgroup.procs"
done

# systemd-nspawn refuses to start from /; a bind of it that is not recursive it takes.
mkdir -p "$folder/root"
mount --bind / "$folder/root"

# Version 2 alone, as on today's Debian, even where the host has the hybrid of both. Without machined
# or a systemd on the host: no registration, and our own cgroups. basic.target, or whatever is
# enabled on the host would be started as well.
export SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1
unset PRIVATE_MOUNTS
exec setpriv --pdeathsig TERM systemd-nspawn --quiet --directory="$folder/root" --volatile=overlay \
    --boot --register=no --keep-unit --console=pipe --link-journal=no --resolv-conf=off \
    --timezone=off --private-network --hostname=test-systemd "$@" -- --unit=basic.target
