# about: nfscp by verbs against Linux's NFS server: files and a tree there and back, 8 calls in flight
# fabric: rxe siw
# programs: nfscp
# timeout: 120
. /suite/guest/nfscp-knfsd.sh
knfsd_up
nfscp_knfsd nfs3+rdma
