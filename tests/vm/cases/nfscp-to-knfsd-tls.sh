# about: nfscp over TCP with TLS with Linux's NFS server, without and with a certificate of the client
# fabric: tcp@trixie-backports
# programs: nfscp
# timeout: 180
# Linux's tlshd sends no application protocol (ALPN).
. /suite/guest/tls.sh
certificates
tlshd_up
files=$SCRATCH/files
mkdir "$files"
for size in 0 1 4095 4096 65537 1048577 $((64 << 20)); do head -c "$size" /dev/urandom >"$files/$size"; done
copies() { # copies OPTIONS..: files in both directions
  local back=$SCRATCH/back
  mkdir "$back"
  try 60 "$BIN/nfscp" --mount-tls off --tls-allow-missing-alpn "$@" "$files"/* "nfs3+tcp://$TLS_NAME/srv/nfs/"
  diff -r "$files" /srv/nfs || fail "the files at the server differ from those copied to it"
  try 60 "$BIN/nfscp" --mount-tls off --tls-allow-missing-alpn "$@" "nfs3+tcp://$TLS_NAME/srv/nfs"/{0,1,4095,4096,65537,1048577,$((64 << 20))} "$back/"
  diff -r "$files" "$back" || fail "the files copied back differ from those copied to the server"
  rm -r "$back" /srv/nfs/*
}
KNFSD_OPTIONS=xprtsec=tls knfsd_up
copies --tls-ca "$SCRATCH/tls/ca.pem"
log "a client without TLS"
refuse 20 'nfscp' "$BIN/nfscp" "$files/1" "nfs3+tcp://$TLS_NAME/srv/nfs/"

echo '/srv/nfs *(rw,fsid=0,no_root_squash,insecure,no_subtree_check,xprtsec=mtls)' >/etc/exports
exportfs -ra
copies --tls-ca "$SCRATCH/tls/ca.pem" --tls-cert "$SCRATCH/tls/client.pem" --tls-key "$SCRATCH/tls/client.key"
log "a client without a certificate"
refuse 20 'nfscp' "$BIN/nfscp" --mount-tls off --tls-allow-missing-alpn --tls-ca "$SCRATCH/tls/ca.pem" "$files/1" "nfs3+tcp://$TLS_NAME/srv/nfs/"
