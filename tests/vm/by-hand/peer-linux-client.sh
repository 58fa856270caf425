# about: rpcrdma-peer tests Linux's NFS client: version 1 over verbs and, with siw, userspace iWARP
# fabric: rxe siw
# programs: rpcrdma-peer@verbs-dlopen
# timeout: 1500
. /suite/guest/peer.sh
# The MOUNT service is that of Linux's server; the peer accepts its handles.
knfsd_up
head -c $((1 << 20)) /dev/zero >/srv/nfs/file
modprobe rpcrdma
mount_port=$(rpcinfo -p localhost | awk '$1 == 100005 && $2 == 3 && $3 == "tcp" { print $4; exit }')
cat >client <<'CLIENT'
# client MOUNT_PORT ADDRESS PORT: mounts, reads the whole file and compares it, then writes to it
set -e
exec >>"$0.log" 2>&1
folder=$(mktemp -d)
trap 'umount -f "$folder" 2>/dev/null || umount -l "$folder" 2>/dev/null; rmdir "$folder"' EXIT
timeout 8 mount -t nfs -o "vers=3,proto=rdma,port=$3,mountproto=tcp,mountvers=3,mountport=$1,nolock,soft,timeo=20,retrans=1,noac" \
  "$2:/srv/nfs" "$folder"
timeout 8 cmp -n $((1 << 20)) "$folder/file" /run/expected
timeout 8 dd if=/run/expected of="$folder/file" bs=65536 count=4 conv=notrunc,fsync status=none
CLIENT
# The byte at offset n is n modulo 251.
{ for n in {0..250}; do printf "\\x$(printf %02x "$n")"; done; } >period
while [ "$(stat -c %s /run/expected 2>/dev/null || echo 0)" -lt $((1 << 20)) ]; do cat period period period period >>/run/expected; done
truncate -s $((1 << 20)) /run/expected
client="bash $SCRATCH/client $mount_port {host} {port}"
MIN_FINDINGS=20 peer_runs 700 "peer-client-$FABRIC" responder --listen "rdma://$ADDR:0" --client "$client" --part v1-client
case $FABRIC in
  siw) MIN_FINDINGS=20 peer_runs 700 peer-client-iwarp responder --listen "iwarp://$ADDR:0" --client "$client" --part v1-client --part iwarp-client ;;
esac
# Linux's client still works.
nfs_mount 3 /mnt/nfs
try 10 cmp /mnt/nfs/file /srv/nfs/file
