# about: built with verbs-dlopen: the conformance suite, blobstore's transfers, and a helpful message where the libraries are not installed
# fabric: rxe siw
# programs: rdmacheck@verbs-dlopen blobstore@verbs-dlopen
# timeout: 150
rdmacheck=$BIN/rdmacheck@verbs-dlopen blobstore=$BIN/blobstore@verbs-dlopen
for program in "$rdmacheck" "$blobstore"; do
  if ldd "$program" | grep -E 'libibverbs|librdmacm'; then fail "$program is linked with the RDMA libraries"; fi
done

# See verbs-conformance.
case $FABRIC in rxe) known=(--known invalidate_of_another_connection) ;; *) known=(--known read_of_sink) ;; esac
try 100 "$rdmacheck" "$ADDR" "${known[@]}"

log "blobs in both directions"
start server "$blobstore" serve --root "$SCRATCH/store" --listen "rdma://$ADDR:20110"
eventually 10 grep -q "rdma://$ADDR:20110" "$SCRATCH/server.out" || fail "blobstore does not listen: $(last_words server)"
for size in 0 4095 1000003 $((8 << 20)); do
  head -c "$size" /dev/urandom >in
  try 30 "$blobstore" put "rdma://$ADDR:20110" "$size" in
  try 30 "$blobstore" get "rdma://$ADDR:20110" "$size" out
  cmp in out || fail "$size bytes differ after put and get"
done
stop server

log "the libraries are not installed"
for library in libibverbs librdmacm; do
  # Only in the mount namespace of this case.
  file=$(ldconfig -p | sed -n "s/.*$library\.so\.1 .*=> //p")
  mount --bind /dev/null "$file"
  refuse 15 "failed to load .*$library.so.1.*librdmacm1" "$rdmacheck" "$ADDR"
  umount "$file"
done
