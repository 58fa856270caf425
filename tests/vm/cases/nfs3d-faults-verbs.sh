# about: nfs3d by verbs: killed and started again while Linux writes, link down while it reads, clients killed
# fabric: rxe
# programs: nfs3d nfscp
# timeout: 150
. /suite/guest/nfs3d-faults.sh
nfs3d_faults rdma
