# about: a table, for an idle machine and --jobs 1: nfscp compared with Linux's client, with each security flavor, at Linux's server
# fabric: rxe@trixie tcp@trixie
# programs: nfscp
# timeout: 900
. /suite/guest/perf.sh
. /suite/guest/nfscp-knfsd.sh
. /suite/guest/krb5.sh
. /suite/guest/tls.sh
realm_up
gssd_up
svcgssd_up
certificates
tlshd_up
KNFSD_OPTIONS=sec=sys:krb5:krb5i:krb5p knfsd_up
ticket user 1000
export KRB5CCNAME=FILE:/tmp/krb5cc_test
kinit user <<<user >/dev/null || fail "no ticket"
MIB=24
head -c $((MIB << 20)) /dev/urandom >"$SCRATCH/file"
chmod 755 "$SCRATCH"
proto=rdma port=20049
[ "$FABRIC" != tcp ] || proto=tcp port=2049
table "flavor" "operation" "Linux (MiB/s)" "nfscp (MiB/s)" "ratio"

# timed COMMAND..: prints the milliseconds that a command takes. For nfscp, its report has the time without MOUNT and FSINFO.
timed() {
  local begun=${EPOCHREALTIME//./}
  "$@" >"$SCRATCH/timed.out" 2>&1 || return 1
  echo $(((${EPOCHREALTIME//./} - begun) / 1000))
}
rate() { awk -v ms="$1" -v mib=$MIB 'BEGIN { printf "%.1f", mib * 1000 / ms }'; } # rate MILLISECONDS

# flavor NAME MOUNT_OPTIONS NFSCP_OPTIONS..: adds two rows
flavor() {
  local name=$1 options=$2 mnt=$SCRATCH/mnt put=() get=() linux_put=() linux_get=()
  shift 2
  mkdir -p "$mnt"
  # Alternate, so that other load affects both alike.
  for _ in 1 2 3; do
    try 60 mount -t nfs -o "vers=3,proto=$proto,port=$port,mountproto=tcp,nolock,$options" "$NAMED:/srv/nfs" "$mnt"
    linux_put+=("$(timed as_user 1000 "dd if='$SCRATCH/file' of='$mnt/linux' bs=1M conv=fsync")")
    try 60 umount "$mnt"
    # A new mount has nothing cached.
    try 60 mount -t nfs -o "vers=3,proto=$proto,port=$port,mountproto=tcp,nolock,$options" "$NAMED:/srv/nfs" "$mnt"
    linux_get+=("$(timed as_user 1000 "dd if='$mnt/linux' of=/tmp/linux-copy bs=1M")")
    try 60 umount "$mnt"
    try 60 "$BIN/nfscp" --json "$@" "$SCRATCH/file" "nfs3+$proto://$NAMED:$port/srv/nfs/nfscp"
    put+=("$(scale "$(number seconds)" 1000)")
    try 60 "$BIN/nfscp" --json "$@" "nfs3+$proto://$NAMED:$port/srv/nfs/nfscp" "$SCRATCH/back"
    get+=("$(scale "$(number seconds)" 1000)")
    cmp "$SCRATCH/file" "$SCRATCH/back" || fail "the file copied back differs"
    rm -f /srv/nfs/* "$SCRATCH/back" /tmp/linux-copy
  done
  log "$name: put: Linux ${linux_put[*]}, nfscp ${put[*]}; get: Linux ${linux_get[*]}, nfscp ${get[*]} (ms)"
  row "$name" put "$(rate "$(median "${linux_put[@]}")")" "$(rate "$(median "${put[@]}")")" "$(ratio "$(median "${linux_put[@]}")" "$(median "${put[@]}")")"
  row "$name" get "$(rate "$(median "${linux_get[@]}")")" "$(rate "$(median "${get[@]}")")" "$(ratio "$(median "${linux_get[@]}")" "$(median "${get[@]}")")"
}
for sec in sys krb5 krb5i krb5p; do flavor $sec "sec=$sec" --sec $sec; done
if [ "$FABRIC" = tcp ]; then
  flavor TLS "sec=sys,xprtsec=tls" --sec sys --mount-tls off --tls-allow-missing-alpn --tls-ca "$SCRATCH/tls/ca.pem"
fi
log "results"
cat "$REPORT"
