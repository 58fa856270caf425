# about: nfs3d by verbs: killed and started again while Linux writes; link down, and the device removed and made anew while Linux reads; clients killed
# fabric: rxe siw
# programs: nfs3d nfscp rpcping
# timeout: 150
. /suite/guest/nfs3d-faults.sh
nfs3d_faults rdma
