# about: Linux's NFS 3 client on nfs3d by verbs
# fabric: rxe siw
# programs: nfs3d
# timeout: 300
. /suite/guest/nfs3d.sh
ulimit -l unlimited
# Fewer small files: emulation is slow, and they are many over siw by userspace iWARP.
nfs3d_case "rdma://$ADDR" 400
