# about: Linux's NFS 3 client with Linux's server: the reference for nfs3d
# fabric: rxe siw
# alternate: yes
# timeout: 400
. /suite/guest/nfs-roundtrip.sh
knfsd_up
nfs_mount 3 "$SCRATCH/mnt"
nfs_roundtrip "$SCRATCH/mnt" /srv/nfs
