# about: nfscp copies large files to a file system that nfs-ganesha exports, and back
# peer: nfs-ganesha
# from: trixie
# limit: 240
# tools: ip unshare
# needs: root
# because: nfs-ganesha opens files by their handles
. "$TOP/tests/foreign/lib.sh"
kind=$(stat -f -c %T .)
case $kind in
  ext* | xfs | btrfs) ;;
  *) not_run "nfs-ganesha does not export a file system of the kind $kind" ;;
esac
mount_root
mkdir export
start_ganesha VFS sys
make_files files 0 1 4095 4096 65537 1048577 $((64 << 20))
url=nfs3+tcp://127.0.0.1:2049/case/export
round_trip "$url" files --mount-port 20048
diff -r files export || fail "the files at the server differ from those copied to it"
round_trip "$url" files --mount-port 20048 --connections 2 --chunk-size 64KiB
tree_round_trip "$url" --mount-port 20048
diff <(facts tree) <(facts export/tree) || fail "modes, times or links of the tree at the server differ"
