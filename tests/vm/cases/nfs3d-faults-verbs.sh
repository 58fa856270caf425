# about: nfs3d over verbs: killed and restarted while Linux writes; link down, and the device removed and added again while Linux reads; clients killed
# fabric: rxe siw
# programs: nfs3d nfscp rpcping
# timeout: 450
. /suite/guest/nfs3d-faults.sh
nfs3d_faults rdma
