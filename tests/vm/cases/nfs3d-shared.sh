# about: Linux's NFS 3 client with nfs3d over verbs with shared Receives
# fabric: rxe
# programs: nfs3d
# timeout: 200
. /suite/guest/nfs3d.sh
ulimit -l unlimited
nfs3d_up main "rdma://$ADDR:20049?srq=64" 20048 --no-root-squash
# Four connections, with more credits than there are Receives.
nfs3d_mount "$SCRATCH/mnt" 20049 20048 nconnect=4
copied_tree "$SCRATCH/mnt" "$SCRATCH/export-main"
large_files "$SCRATCH/mnt" "$SCRATCH/export-main"
several_at_once "$SCRATCH/mnt" "$SCRATCH/export-main"
try 20 umount "$SCRATCH/mnt"
nfs3d_down main
