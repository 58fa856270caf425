# about: nfscp copies files and a tree to nfs-ganesha's memory and back
# peer: nfs-ganesha
# from: trixie
# limit: 240
# tools: ip unshare
. "$TOP/tests/foreign/lib.sh"
mount_root
start_ganesha MEM sys
make_files files 0 1 4095 4096 65537 1048577 2000000
url=nfs3+tcp://127.0.0.1:2049/export
# The port of MOUNT as an option, and from rpcbind.
round_trip "$url" files --mount-port 20048
round_trip "$url" files --chunk-size 4KiB --jobs 8
tree_round_trip "$url" --mount-port 20048
refused 'no such file' nfscp --mount-port 20048 "$url/absent" back/
refused 'MNT3ERR' nfscp --mount-port 20048 nfs3+tcp://127.0.0.1:2049/elsewhere/x back/
