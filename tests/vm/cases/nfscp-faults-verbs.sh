# about: nfscp over verbs with Linux's server: server stopped and restarted, clients killed
# fabric: rxe
# programs: nfscp
# timeout: 180
. /suite/guest/nfscp-faults.sh
knfsd_up
nfscp_faults nfs3+rdma
