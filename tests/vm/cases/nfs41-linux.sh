# about: Linux's NFS 4.1 client with Linux's server: the reference, with callbacks on the same connection
# fabric: rxe
# timeout: 120
. /suite/guest/nfs-roundtrip.sh
knfsd_up
nfs_mount 4.1 "$SCRATCH/mnt"
nfs_roundtrip "$SCRATCH/mnt" /srv/nfs
