# about: nfscp by verbs, and Linux's server: server stopped and started, clients killed
# fabric: rxe
# programs: nfscp
# timeout: 180
. /suite/guest/nfscp-faults.sh
knfsd_up
nfscp_faults nfs3+rdma
