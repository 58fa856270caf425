# about: the Python package nfs-rs reads, writes and lists files of nfs3d
# peer: nfs-rs
# from: python
# limit: 240
# tools: ip unshare python3
. "$TOP/tests/foreign/lib.sh"
start_nfs3d
make_files export 0 1 4095 65537 1048577 $((20 << 20))
"$PEER/bin/python" "$TOP/tests/foreign/nfs_rs_client.py" export >client.log 2>&1 || fail "$(tail -n 1 client.log)"
