# about: Linux's NFS 3 client on nfs3d by verbs
# fabric: rxe
# programs: nfs3d
# timeout: 300
# Not siw, yet: seen once, on a busy machine, that 64 MiB written through the page cache arrived changed. Why is not known.
. /suite/guest/nfs3d.sh
ulimit -l unlimited
# Fewer small files: emulation is slow, and they are many over siw by userspace iWARP.
nfs3d_case "rdma://$ADDR" 400
