# about: nfscp copies files to nfs-ganesha and back with TLS
# peer: nfs-ganesha
# from: sid
# limit: 240
# tools: ip unshare openssl
. "$TOP/tests/foreign/lib.sh"
mount_root
# An authority, a certificate of the server for its address, and one of a client.
self_signed=(openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2)
authority() { "${self_signed[@]}" -keyout "$1.key" -out "$1.pem" -subj "/CN=$1"; }
certificate() { # certificate NAME SUBJECT_ALT_NAME
  "${self_signed[@]}" -keyout "$1.key" -out "$1.pem" -subj "/CN=$1" -CA ca.pem -CAkey ca.key \
    -addext "subjectAltName=$2" -addext basicConstraints=critical,CA:FALSE
}
{
  authority ca
  authority other
  certificate server IP:127.0.0.1
  certificate client DNS:client.example
} >openssl.log 2>&1
EXPORT_OPTIONS="XprtSec = tls;" start_ganesha MEM sys 'TLS_CONFIG {
  Enable_TLS = true; TLS_Min_Version = "TLSv1.3";
  TLS_CA_File = /case/ca.pem; TLS_Cert_File = /case/server.pem; TLS_Key_File = /case/server.key;
}'
make_files files 0 1 4095 65537 1048577 2000000
url=nfs3+tcp://127.0.0.1:2049/export
# nfs-ganesha 15.2 loses the first call of some sessions, and answers it with the XID of the AUTH_TLS probe. nfscp makes
# it again. It also takes the first bytes of some handshakes for RPC. It then does not answer, or reports a wrong version
# number, and sends something that is not TLS.
nfscp() {
  local tries
  for tries in {1..6}; do
    "$BIN/nfscp" "$@" 2>nfscp.log && return 0
    grep -qE 'TLS handshake (failed.*InvalidContentType|did not finish)|deadline passed' nfscp.log || break
    log "try $tries: $(tail -n 1 nfscp.log)"
  done
  cat nfscp.log >&2
  return 1
}
common=(--mount-port 20048 --timeout 3 --tls-ca ca.pem)
tls=("${common[@]}" --tls-cert client.pem --tls-key client.key)
# It negotiates no application protocol.
refused 'ALPN' nfscp "${tls[@]}" files/1 "$url/"
tls+=(--tls-allow-missing-alpn)
round_trip "$url" files "${tls[@]}"
tree_round_trip "$url" "${tls[@]}"
nfscp -q --verify "${common[@]}" --tls-allow-missing-alpn files/1 "$url/anonymous"
refused 'UnknownIssuer' nfscp "${tls[@]/ca.pem/other.pem}" files/1 "$url/"
refused 'AUTH_TOOWEAK|MNT3ERR_ACCES' nfscp --mount-port 20048 --retry 1 files/1 "$url/"
