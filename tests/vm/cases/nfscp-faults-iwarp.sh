# about: nfscp by userspace iWARP, and Linux's server on siw: link down, server stopped and started, clients killed
# fabric: siw
# programs: nfscp
# timeout: 180
. /suite/guest/nfscp-faults.sh
knfsd_up
nfscp_faults nfs3+iwarp
