# Tests of nfs3d with Linux's NFS client and Kerberos.
. /suite/guest/nfs3d.sh
. /suite/guest/krb5.sh

# krb5_mount FOLDER SEC PROTO PORT: mounts the export with a security flavor
krb5_mount() {
  mkdir -p "$1"
  try $((30 + $(mount_limit))) mount -t nfs -o "vers=3,proto=$3,port=$4,mountproto=tcp,mountvers=3,mountport=20048,nolock,sec=$2" \
    "$NAMED:/export" "$1"
  grep -q "xprt:.*$3" /proc/self/mountstats || fail "$1 is mounted, but not over $3"
  grep -q " $1 .*sec=$2[, ]" /proc/self/mounts || fail "$1 is mounted, but not with sec=$2"
}

# krb5_workload SEC PROTO PORT: runs the workload of nfs3d.sh, or only its first part if the run is short, as a user with a ticket
krb5_workload() {
  local mnt=$SCRATCH/mnt-$2-$1 export=$SCRATCH/export-main
  log "sec=$1 over $2"
  krb5_mount "$mnt" "$@"

  log "users"
  if as_user 1001 ": >'$mnt/refused'" 2>/dev/null; then fail "a user without a ticket can write"; fi
  as_user 1000 "echo mine >'$mnt/mine' && cat '$mnt/mine'" || fail "a user with a ticket cannot write"
  [ "$(stat -c %u:%g "$export/mine")" = 1000:1000 ] || fail "the file belongs to $(stat -c %u:%g "$export/mine")"
  if as_user 1001 "cat '$mnt/mine'" 2>/dev/null; then fail "a user without a ticket can read"; fi
  rm "$mnt/mine"

  by 1000 copied_tree "$mnt" "$export"
  if as_user 1001 "cp -r /etc/hosts '$mnt/refused'" 2>/dev/null; then fail "a user without a ticket can copy"; fi
  if [ $EXTENT = long ]; then
    by 1000 large_files "$mnt" "$export"
    by 1000 verified_mix "$mnt"
    by 1000 many_files "$mnt" "$export"
    by 1000 several_at_once "$mnt" "$export"
  fi
  try 20 umount "$mnt"
}

# krb5_permissions SEC PROTO PORT: tests of names and permissions, for which all users have tickets
krb5_permissions() {
  local mnt=$SCRATCH/mnt-permissions
  ticket other 1001
  ticket third 1002
  krb5_mount "$mnt" "$@"
  semantics "$mnt" "$SCRATCH/export-main"
  try 20 umount "$mnt"
}

# nfs3d_krb5_up URL..: starts nfs3d with Kerberos only
nfs3d_krb5_up() {
  realm_up
  gssd_up
  ticket user 1000
  echo "nfs/$NAMED@$REALM 0 0" >principals
  mkdir -m 1777 "$SCRATCH/export-main"
  nfs3d_up main "$1" 20048 --no-root-squash --sec krb5:krb5i:krb5p --principals principals "${@:2}"
}

# refused_sys PROTO PORT: AUTH_SYS is refused
refused_sys() {
  local mnt=$SCRATCH/mnt-sys
  mkdir -p "$mnt"
  refuse 30 'mount.nfs' mount -t nfs \
    -o "vers=3,proto=$1,port=$2,mountproto=tcp,mountvers=3,mountport=20048,nolock,sec=sys" "$NAMED:/export" "$mnt"
}
