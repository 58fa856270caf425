# NFS with TLS in the guest: certificates, and the daemon that makes the kernel's handshakes.

# Name of the guest in its certificates.
TLS_NAME=guest.test

# certificates: makes $SCRATCH/tls: an authority (ca.pem), and certificates signed by it for the server and the client
certificates() {
  local name
  mkdir -p "$SCRATCH/tls"
  (
    cd "$SCRATCH/tls"
    key=(-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes)
    openssl req -x509 "${key[@]}" -keyout ca.key -out ca.pem -days 2 -subj '/CN=test authority' \
      -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign
    for name in server client; do
      openssl req "${key[@]}" -keyout $name.key -out $name.csr -subj "/CN=$TLS_NAME"
      printf '%s\n' "subjectAltName=DNS:$TLS_NAME,IP:$ADDR" basicConstraints=CA:FALSE keyUsage=digitalSignature \
        extendedKeyUsage=serverAuth,clientAuth >$name.extensions
      openssl x509 -req -in $name.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile $name.extensions -out $name.pem
      # tlshd wants its keys unreadable to others.
      chmod 600 $name.key
    done
  ) >"$SCRATCH/openssl.out" 2>&1 || fail "openssl: $(tail -n 1 "$SCRATCH/openssl.out")"
  { cat /etc/hosts; echo "$ADDR $TLS_NAME"; } >"$SCRATCH/hosts"
  mount --bind "$SCRATCH/hosts" /etc/hosts
}

# tlshd_up: starts the daemon with the certificates of both sides
tlshd_up() {
  modprobe tls
  printf '%s\n' '[debug]' loglevel=1 tls=1 nl=0 '[authenticate.client]' "x509.truststore=$SCRATCH/tls/ca.pem" \
    "x509.certificate=$SCRATCH/tls/client.pem" "x509.private_key=$SCRATCH/tls/client.key" '[authenticate.server]' \
    "x509.truststore=$SCRATCH/tls/ca.pem" "x509.certificate=$SCRATCH/tls/server.pem" \
    "x509.private_key=$SCRATCH/tls/server.key" >"$SCRATCH/tlshd.conf"
  start tlshd tlshd --stderr --config "$SCRATCH/tlshd.conf"
}

# tls_mount FOLDER SOURCE POLICY OPTIONS: mounts an export with xprtsec=POLICY
tls_mount() {
  mkdir -p "$1"
  try 30 mount -t nfs -o "proto=tcp,xprtsec=$3,$4" "$TLS_NAME:$2" "$1"
  grep -q " $1 .*xprtsec=$3[, ]" /proc/self/mounts || fail "$1 is mounted, but not with xprtsec=$3"
}
