# about: nfscp over userspace iWARP with Linux's server on siw: link down, server stopped and restarted, clients killed
# fabric: siw
# programs: nfscp
# timeout: 180
. /suite/guest/nfscp-faults.sh
knfsd_up
nfscp_faults nfs3+iwarp
