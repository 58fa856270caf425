# about: nfscp over userspace iWARP with Linux's NFS server on siw: files and a tree in both directions, 8 calls in flight
# fabric: siw
# programs: nfscp
# timeout: 120
. /suite/guest/nfscp-knfsd.sh
knfsd_up
nfscp_knfsd nfs3+iwarp
