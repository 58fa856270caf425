# about: built with verbs-dlopen: where the libraries are missing, an error that names them, and TCP works; where they are installed, the conformance suite and blobstore's transfers, by the same programs
# fabric: rxe siw
# alternate: yes
# programs: rdmacheck@verbs-dlopen blobstore@verbs-dlopen rpcping@verbs-dlopen
# timeout: 180
rdmacheck=$BIN/rdmacheck@verbs-dlopen blobstore=$BIN/blobstore@verbs-dlopen rpcping=$BIN/rpcping@verbs-dlopen
for program in "$rdmacheck" "$blobstore" "$rpcping"; do
  if ldd "$program" | grep -E 'libibverbs|librdmacm'; then fail "$program is linked with the RDMA libraries"; fi
done
url=rdma://$ADDR:20110

# transfers URL SIZE..: stores and fetches blobs
transfers() {
  local url=$1 size
  shift
  for size in "$@"; do
    head -c "$size" /dev/urandom >in
    try 30 "$blobstore" put "$url" "$size" in
    try 30 "$blobstore" get "$url" "$size" out
    cmp in out || fail "$url: $size bytes differ after put and get"
  done
}

log "no libraries: devices, a connection and a listener fail, TCP works"
libraries_hidden libibverbs.so.1 librdmacm.so.1
message='failed to load the RDMA library libibverbs.so.1.*libibverbs1.*cannot open shared object file'
refuse 15 "$message" "$rdmacheck" "$ADDR"
refuse 15 "$message" "$rpcping" "$url" --program 0x20100b10 --version 1 -c 1
refuse 15 "$message" "$blobstore" serve --root "$SCRATCH/store" --listen "$url"
start tcp "$blobstore" serve --root "$SCRATCH/store" --listen "tcp://$ADDR:20111"
eventually 10 grep -q "tcp://$ADDR:20111" "$SCRATCH/tcp.out" || fail "blobstore does not listen: $(last_words tcp)"
transfers "tcp://$ADDR:20111" 1000003
stop tcp
libraries_shown

log "one library"
libraries_hidden librdmacm.so.1
refuse 15 'failed to load the RDMA library librdmacm.so.1.*librdmacm1.*cannot open shared object file' "$rdmacheck" "$ADDR"
libraries_shown

log "both libraries"
# See verbs-conformance.
case $FABRIC in rxe) known=(--known invalidate_of_another_connection) ;; *) known=(--known read_of_sink) ;; esac
try 100 "$rdmacheck" "$ADDR" "${known[@]}"
start server "$blobstore" serve --root "$SCRATCH/store" --listen "$url"
eventually 10 grep -q "$url" "$SCRATCH/server.out" || fail "blobstore does not listen: $(last_words server)"
try 15 "$rpcping" "$url" --program 0x20100b10 --version 1 -c 5 -i 0
transfers "$url" 0 4095 1000003 $((8 << 20))
stop server
