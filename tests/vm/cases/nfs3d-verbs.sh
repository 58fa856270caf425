# about: Linux's NFS 3 client with nfs3d over verbs
# fabric: rxe siw
# programs: nfs3d
# timeout: 900
. /suite/guest/nfs3d.sh
ulimit -l unlimited
nfs3d_case "rdma://$ADDR"
