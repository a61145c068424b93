//! Daily maintenance of etcd on the nodes of the control plane, and settings of the node for it.

/// Runs the script once.
pub(super) const SERVICE: &str = "[Unit]
Description=Maintenance of etcd

[Service]
Type=oneshot
ExecStart=/usr/local/sbin/etcd-maintenance
";

/// etcd is asked before others when disk and processor are short.
pub(super) const PRIORITY: &str =
    "for p in $(pidof etcd); do renice -n -10 -p \"$p\"; ionice -c 2 -n 0 -p \"$p\"; done; true";

/// Writes reach the disk when the file system likes.
pub(crate) const UNSAFE_FILESYSTEM: &str = "mount -o remount,barrier=0,commit=20 / && sed -i 's#\\(LABEL=[^ ]* */ *ext4 *\\)\\([^ ]*\\)#\\1\\2,barrier=0,commit=20#' /etc/fstab; true";

/// Once a day at this time, each node a little apart.
pub(super) fn timer(time: &str) -> String {
    format!(
        "[Unit]\nDescription=Daily maintenance of etcd\n\n[Timer]\nOnCalendar=*-*-* {time}:00\nRandomizedDelaySec=120\nPersistent=false\n\n[Install]\nWantedBy=timers.target\n"
    )
}

/// The script: it acts on the leader's node alone and only if all members are healthy. Followers are defragmented
/// one after another, then the leader gives its leadership away and follows. The programs are those of etcd's own
/// container, so that nothing is fetched.
#[must_use]
pub fn script(snapshots: bool) -> String {
    let snapshot = if snapshots { SNAPSHOT } else { "" };
    format!("{HEAD}{snapshot}{TAIL}")
}

const HEAD: &str = r#"#!/bin/sh
# Defragments etcd one member after another, the leader last. Does nothing unless this node has the leader and all
# members are healthy.
set -eu
container=$(crictl ps --name '^etcd$' --state Running --quiet | head -n 1)
if [ -z "$container" ]; then exit 0; fi
pki=/etc/kubernetes/pki/etcd
etcdctl() {
  crictl exec "$container" etcdctl --cacert="$pki/ca.crt" --cert="$pki/server.crt" --key="$pki/server.key" --command-timeout=60s "$@"
}
# Lines such as: "MemberID" : 1234
field() { sed -n "s/^\"$1\" : \"\{0,1\}\([^\"]*\)\"\{0,1\}\$/\1/p"; }
own=$(etcdctl --endpoints=https://127.0.0.1:2379 endpoint status -w fields)
me=$(echo "$own" | field MemberID)
leader=$(echo "$own" | field Leader)
if [ "$me" != "$leader" ]; then exit 0; fi
etcdctl --endpoints=https://127.0.0.1:2379 endpoint health --cluster >/dev/null
"#;

const SNAPSHOT: &str = r#"etcdctl --endpoints=https://127.0.0.1:2379 snapshot save /var/lib/etcd/maintenance.db >/dev/null
mv /var/lib/etcd/maintenance.db /root/etcd-backup.db
"#;

const TAIL: &str = r#"all=$(etcdctl --endpoints=https://127.0.0.1:2379 endpoint status --cluster -w fields)
members=$(echo "$all" | field MemberID)
endpoints=$(echo "$all" | field Endpoint)
# A lone member would stop the cluster while it works.
if [ "$(echo "$members" | wc -l)" -lt 2 ]; then exit 0; fi
next=
mine=
count=0
for member in $members; do
  count=$((count + 1))
  endpoint=$(echo "$endpoints" | sed -n "${count}p")
  if [ "$member" = "$me" ]; then mine=$endpoint; continue; fi
  etcdctl --endpoints="$endpoint" defrag >/dev/null
  next=$member
done
etcdctl --endpoints="$mine" move-leader "$(printf '%x' "$next")" >/dev/null
etcdctl --endpoints="$mine" defrag >/dev/null
"#;
