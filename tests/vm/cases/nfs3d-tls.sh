# about: Linux's NFS 3 client with nfs3d over TCP with TLS, without and with a certificate of the client
# fabric: tcp@trixie-backports
# programs: nfs3d
# timeout: 240
# Linux's tlshd sends no application protocol (ALPN).
. /suite/guest/nfs3d.sh
. /suite/guest/tls.sh
certificates
tlshd_up
rpcbind -w
options=vers=3,port=2049,mountproto=tcp,mountvers=3,mountport=20048,nolock
nfs3d_tls_up() { # nfs3d_tls_up NAME [OPTIONS]
  nfs3d_up "$1" "tcp://$ADDR:2049" "20048?tls=opportunistic" --no-root-squash --tls-cert "$SCRATCH/tls/server.pem" \
    --tls-key "$SCRATCH/tls/server.key" --tls-allow-missing-alpn "${@:2}"
}
workload() { # workload NAME POLICY
  tls_mount "$SCRATCH/mnt-$1" /export "$2" "$options"
  copied_tree "$SCRATCH/mnt-$1" "$SCRATCH/export-$1"
  [ $EXTENT = short ] || large_files "$SCRATCH/mnt-$1" "$SCRATCH/export-$1"
  try 20 umount "$SCRATCH/mnt-$1"
}

nfs3d_tls_up one
workload one tls
log "a client without TLS"
refuse 30 'mount.nfs' mount -t nfs -o "proto=tcp,xprtsec=none,$options" "$TLS_NAME:/export" "$SCRATCH/mnt-one"
nfs3d_down one

nfs3d_tls_up mutual --tls-client-ca "$SCRATCH/tls/ca.pem"
workload mutual mtls
log "a client without a certificate"
refuse 30 'mount.nfs' timeout 20 mount -t nfs -o "proto=tcp,xprtsec=tls,soft,retry=0,$options" "$TLS_NAME:/export" "$SCRATCH/mnt-mutual"
nfs3d_down mutual
