# about: nfs3d over userspace iWARP: killed and restarted while Linux writes, link down while it reads, clients killed
# fabric: siw
# programs: nfs3d nfscp
# timeout: 150
. /suite/guest/nfs3d-faults.sh
nfs3d_faults iwarp
