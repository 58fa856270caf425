# about: rpcrdma-peer tests Linux's NFS server: version 1 over verbs and userspace iWARP, refusal of version 2, and siw's iWARP
# fabric: rxe siw
# programs: rpcrdma-peer@verbs-dlopen
# timeout: 1500
. /suite/guest/peer.sh
knfsd_up
head -c $((1 << 20)) /dev/urandom >/srv/nfs/file
chmod 666 /srv/nfs/file
mount_port=$(rpcinfo -p localhost | awk '$1 == 100005 && $2 == 3 && $3 == "tcp" { print $4; exit }')
file=$ADDR:$mount_port:/srv/nfs/file
peer_runs 600 "peer-server-$FABRIC" requester "rdma://$ADDR:20049" --mount "$file" --part v1-server --part v1-nfs --part v2-server
case $FABRIC in
  siw) peer_runs 600 peer-server-iwarp requester "iwarp://$ADDR:20049" --mount "$file" --part v1-server --part v1-nfs --part iwarp-server ;;
esac
# Linux still serves others. siw may have closed its listener: README.md.
if [ "$FABRIC" = rxe ]; then
  nfs_mount 3 /mnt/nfs
  try 10 cmp /mnt/nfs/file /srv/nfs/file
fi
