# about: a pool of connections over two network interfaces uses both, and transfers continue when one goes down
# fabric: siw
# programs: blobstore
# timeout: 150
other_device_made
other=rdma://$OTHER_ADDR:20100
start server "$BIN/blobstore" serve --root "$SCRATCH/store" --listen "rdma://$ADDR:20100" --listen "$other"
eventually 10 grep -q "$other" "$SCRATCH/server.out" || fail "blobstore does not listen: $(last_words server)"
urls=("rdma://$ADDR:20100" --path "$other")

# sends ADDRESS: captures until the server has sent data from this address
sends() {
  start "from-$1" tcpdump -Z root -i lo -c 20 -w /dev/null "src host $1 and src port 20100 and greater 1000"
  eventually 10 grep -q 'listening on' "$SCRATCH/from-$1.out"
}

long_file source
try 60 "$BIN/blobstore" put "rdma://$ADDR:20100" file source
log "one interface goes down during a transfer over both"
sends "$ADDR"
sends "$OTHER_ADDR"
start get bash -c "exec '$BIN/blobstore' get '${urls[0]}' --path '$other' file - --range 64KiB --depth 2 >'$SCRATCH/copy'"
partly "$SCRATCH/copy" get
# A stopped client cannot finish before the interface goes down.
kill -STOP "${PID[get]}"
finish "from-$ADDR" 10
finish "from-$OTHER_ADDR" 10
[ "$(stat -c %s "$SCRATCH/copy")" -lt "$(stat -c %s source)" ] || fail "the transfer was over before it could be interrupted"
ip link set dm1 down
kill -CONT "${PID[get]}"
finish get 60
cmp source copy || fail "the data differs after the loss of an interface"

log "without the interface, and again with it"
try 60 "$BIN/blobstore" get "${urls[@]}" file copy
ip link set dm1 up
try 60 "$BIN/blobstore" get "${urls[@]}" file copy
cmp source copy || fail "the data differs"
