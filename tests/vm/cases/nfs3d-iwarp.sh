# about: Linux's NFS 3 client with nfs3d over userspace iWARP
# fabric: siw
# programs: nfs3d
# timeout: 300
. /suite/guest/nfs3d.sh
nfs3d_case "iwarp://$ADDR"
