#!/bin/sh
# Run a command as a rendered container does: user 1000 without a name, no capability, a root file
# system that is read-only, the model cache read-only, and only the mounts of the manifest writable.
#   container.sh ROOT MODELS PREFIX... -- COMMAND...     inside `unshare --mount`, as root
# ROOT: an empty folder. PREFIX: folders of the host that the command's program lies in.
set -eu
root=$1 models=$2
shift 2
mount --make-rprivate /
mount -t tmpfs tmpfs "$root"
for name in usr lib lib64 bin sbin etc; do
    if [ -L "/$name" ]; then
        cp -P "/$name" "$root/$name"
    elif [ -d "/$name" ]; then
        mkdir "$root/$name"
        mount --bind "/$name" "$root/$name"
        mount -o remount,bind,ro "$root/$name"
    fi
done
for name in proc sys dev models cache home/vllm tmp; do mkdir -p "$root/$name"; done
chmod -R a+rX "$root" 2>/dev/null || true
mount --rbind /proc "$root/proc"
mount --rbind /sys "$root/sys"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for name in null zero random urandom tty; do
    : >"$root/dev/$name"
    mount --bind "/dev/$name" "$root/dev/$name"
done
mkdir "$root/dev/shm"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mount --bind "$models" "$root/models"
mount -o remount,bind,ro "$root/models"
for name in cache home/vllm tmp; do
    mount -t tmpfs -o uid=1000,gid=1000,mode=2775 tmpfs "$root/$name"
done
# After those, which would hide what lies below /tmp or a home.
while [ "$1" != -- ]; do
    mkdir -p "$root$1"
    mount --bind "$1" "$root$1"
    mount -o remount,bind,ro "$root$1"
    shift
done
shift
mount -o remount,ro "$root"
exec chroot "$root" setpriv --reuid 1000 --regid 1000 --clear-groups --no-new-privs \
    --bounding-set=-all --inh-caps=-all -- "$@"
