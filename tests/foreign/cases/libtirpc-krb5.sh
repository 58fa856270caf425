# about: a client on libtirpc calls nfs3d and blobstore with each flavor of Kerberos
# peer: libtirpc
# from: libtirpc
# limit: 240
# tools: ip unshare cc pkg-config krb5kdc kadmin.local kinit
. "$TOP/tests/foreign/lib.sh"
client=$PEER/gss_client
start_realm
mkdir -m 1777 export
# Where one user only is mapped, the server can act as no other one.
alice=4242
awk '{ users += $3 } END { exit users < 2 }' /proc/self/uid_map || alice=0
echo "alice@TEST.RPCRDMA $alice $alice" >principals
chmod a+x . ..
start_nfs3d --sec krb5:krb5i:krb5p --service nfs@localhost --principals principals
make_files files 0 1 4095 65537 1048577 5000000

for sec in krb5 krb5i krb5p; do
  log "NFS with $sec"
  for name in 0 1 4095 65537 1048577 5000000; do
    "$client" nfs $sec put "files/$name" "$sec-$name"
    same "files/$name" "export/$sec-$name"
    [ "$(stat -c %u "export/$sec-$name")" -eq $alice ] || fail "the file belongs to $(stat -c %u "export/$sec-$name")"
    "$client" nfs $sec get "$sec-$name" back
    same "files/$name" back
  done
done
refused 'LOOKUP.*(TOOWEAK|too weak)' "$client" nfs sys get krb5-1 back

start blobstore "$BIN/blobstore" serve --root blobs --listen tcp://127.0.0.1:20100 --sec krb5i:krb5p \
  --service host@localhost
listening blobstore 20100
for sec in krb5i krb5p; do
  log "blobs with $sec"
  for name in 0 1 4095 65537; do
    "$BIN/blobstore" put --sec $sec tcp://localhost:20100 "ours/$name" "files/$name" >put.out
    digest=$(grep -oE '\b[0-9a-f]{64}\b' put.out)
    "$client" blobs $sec get "ours/$name" back
    same "files/$name" back
    "$client" blobs $sec put "files/$name" "theirs/$sec-$name" "$digest"
    rm back
    "$BIN/blobstore" get --sec $sec tcp://localhost:20100 "theirs/$sec-$name" back >/dev/null
    same "files/$name" back
    rm back
  done
done
refused 'NULL.*(TOOWEAK|too weak)' "$client" blobs krb5 get ours/1 back
refused 'NULL.*(TOOWEAK|too weak)' "$client" blobs sys get ours/1 back
