# about: a pool of connections over two network interfaces uses both, and transfers continue when one goes down
# fabric: siw
# programs: blobstore
# timeout: 150
other_device_made
other=rdma://$OTHER_ADDR:20100
start server "$BIN/blobstore" serve --root "$SCRATCH/store" --listen "rdma://$ADDR:20100" --listen "$other"
eventually 10 grep -q "$other" "$SCRATCH/server.out" || fail "blobstore does not listen: $(last_words server)"
urls=("rdma://$ADDR:20100" --path "$other")

# used ADDRESS: succeeds if the connection to this address carries data
used() { [ "$(timeout 2 tcpdump -Z root -i lo -w - "src host $1 and src port 20100" 2>/dev/null | wc -c)" -gt 100000 ]; }

long_file source
try 60 "$BIN/blobstore" put "rdma://$ADDR:20100" file source
log "one interface goes down during a transfer over both"
start get bash -c "'$BIN/blobstore' get '${urls[0]}' --path '$other' file - --range 64KiB --depth 2 >'$SCRATCH/copy'"
partly "$SCRATCH/copy" get
for address in "$ADDR" "$OTHER_ADDR"; do
  used "$address" || fail "the connection to $address is not used"
done
ip link set dm1 down
finish get 60
cmp source copy || fail "the data differs after the loss of an interface"

log "without the interface, and again with it"
try 60 "$BIN/blobstore" get "${urls[@]}" file copy
ip link set dm1 up
try 60 "$BIN/blobstore" get "${urls[@]}" file copy
cmp source copy || fail "the data differs"
