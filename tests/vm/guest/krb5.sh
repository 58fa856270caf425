# Kerberos in the guest: a realm with its KDC, and the daemons of Linux's NFS client and server. Files of /etc are replaced in the
# mount namespace of the case.

REALM=TEST.RPCRDMA
# Name of the guest. Kerberos names services by host names.
NAMED=guest.test

# replace FILE: replaces a file by the standard input
replace() {
  local copy
  copy=$SCRATCH/etc-$(basename "$1")
  cat >"$copy"
  [ -e "$1" ] || : >"$1"
  mount --bind "$copy" "$1"
}

# realm_up: makes the realm, with the principals user, other and third for the users 1000, 1001 and 1002, and of the guest's services
realm_up() {
  local id name
  echo $NAMED >/proc/sys/kernel/hostname
  { cat /etc/hosts; echo "$ADDR $NAMED"; } | replace /etc/hosts
  { cat /etc/passwd; echo 'other:x:1001:1001::/tmp:/bin/bash'; echo 'third:x:1002:1002::/tmp:/bin/bash'; } | replace /etc/passwd
  { cat /etc/group; printf '%s\n' other:x:1001: third:x:1002: some:x:50:user,other few:x:51:third; } | replace /etc/group
  # Linux 6.1 supports no newer encryption types.
  SERVICES="nfs/$NAMED host/$NAMED" ENCTYPES=aes256-cts-hmac-sha1-96:normal try 60 "$BIN/realm" "$SCRATCH/realm" 88
  replace /etc/krb5.conf <"$SCRATCH/realm/krb5.conf"
  replace /etc/krb5.keytab <"$SCRATCH/realm/keytab"
  for name in user other third; do
    KRB5_KDC_PROFILE=$SCRATCH/realm/kdc.conf kadmin.local -r $REALM -q "addprinc -pw $name $name" >>"$SCRATCH/realm/log" 2>&1
  done
}

# ticket NAME UID: obtains a ticket where rpc.gssd looks for it
ticket() {
  KRB5CCNAME=FILE:/tmp/krb5cc_$2 kinit "$1" <<<"$1" >/dev/null || fail "no ticket for $1"
  chown "$2" "/tmp/krb5cc_$2"
}

# gssd_up: starts the daemon of Linux's client, and loads Kerberos into the kernel
gssd_up() {
  rm -f /tmp/krb5cc_*
  modprobe -a auth_rpcgss rpcsec_gss_krb5
  mkdir -p /run/rpc_pipefs
  mountpoint -q /run/rpc_pipefs || mount -t rpc_pipefs rpc_pipefs /run/rpc_pipefs
  start gssd rpc.gssd -f -p /run/rpc_pipefs -vv
}

# svcgssd_up: starts the daemon of Linux's server
svcgssd_up() {
  modprobe -a auth_rpcgss rpcsec_gss_krb5
  printf '%s\n' '[General]' 'Domain = test' "Local-Realms = $REALM" '[Mapping]' 'Nobody-User = nobody' \
    'Nobody-Group = nogroup' '[Translation]' 'Method = nsswitch' | replace /etc/idmapd.conf
  mountpoint -q /proc/fs/nfsd || mount -t nfsd nfsd /proc/fs/nfsd
  start svcgssd rpc.svcgssd -f -n -vv
}

# as UID COMMAND: runs a shell command as a user, without groups
as_user() { setpriv --reuid="$1" --regid="$1" --clear-groups bash -c "$2"; }
