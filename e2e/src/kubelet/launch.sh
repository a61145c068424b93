# Makes the file system of one container in this mount namespace and becomes its program:
#   launch ROOT USER READ-ONLY-ROOT [SOURCE TARGET MODE]... -- PROGRAM [ARGUMENT]...
# Only the machine's libraries are visible in it, not its programs.
set -e
PATH=/usr/sbin:/usr/bin:/sbin:/bin
root=$1 user=$2 read_only=$3
shift 3
mount -t tmpfs -o mode=755 tmpfs "$root"
mkdir "$root/proc" "$root/dev" "$root/etc" "$root/tmp" "$root/usr"
chmod 1777 "$root/tmp"
echo '127.0.0.1 localhost' >"$root/etc/hosts"
for folder in /usr/lib /usr/lib64 /lib /lib64; do
    if [ -L "$folder" ]; then
        ln -s "$(readlink "$folder")" "$root$folder"
    elif [ -d "$folder" ]; then
        mkdir -p "$root$folder"
        mount --bind "$folder" "$root$folder"
    fi
done
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
while [ "$1" != -- ]; do
    if [ -d "$1" ]; then
        mkdir -p "$root$2"
    else
        mkdir -p "$root${2%/*}"
        : >>"$root$2"
    fi
    mount --bind "$1" "$root$2"
    if [ "$3" = ro ]; then
        mount -o remount,bind,ro "$root$2"
    fi
    shift 3
done
shift
if [ "$read_only" = true ]; then
    mount -o remount,bind,ro "$root"
fi
unset PWD OLDPWD
if [ "$user" = root ]; then
    exec chroot "$root" "$@"
fi
exec chroot --userspec="$user" "$root" "$@"
