# about: Linux's NFS 3 client on nfs3d by verbs
# fabric: rxe siw
# programs: nfs3d
# timeout: 420
. /suite/guest/nfs3d.sh
ulimit -l unlimited
# Emulation is slow: small files are many over rxe only, whose guest has the fewer cases.
case $FABRIC in rxe) count=2000 ;; *) count=400 ;; esac
nfs3d_case "rdma://$ADDR" $count
