# about: Linux's NFS 3 client with Linux's server, both with TLS: the reference for nfs3d and nfscp
# fabric: tcp@trixie-backports
# timeout: 120
. /suite/guest/nfs-roundtrip.sh
. /suite/guest/tls.sh
certificates
tlshd_up
KNFSD_OPTIONS=xprtsec=tls:mtls knfsd_up
for policy in tls mtls; do
  tls_mount "$SCRATCH/mnt" /srv/nfs "$policy" vers=3,mountproto=tcp,mountvers=3,nolock
  nfs_roundtrip "$SCRATCH/mnt" /srv/nfs
  rm -r "$SCRATCH"/{tree,out,direct}
done
refuse 30 'mount.nfs' mount -t nfs -o vers=3,proto=tcp,mountproto=tcp,mountvers=3,nolock,xprtsec=none "$TLS_NAME:/srv/nfs" "$SCRATCH/mnt"
