# about: an RDMA device is removed and comes back several times, under load: client and server notice at once, and use TCP meanwhile
# fabric: rxe@trixie-backports siw@trixie-backports
# alternate: yes
# programs: blobstore
# timeout: 240
. /suite/guest/load.sh
# librdmacm closes a removed device only if there is another one.
other_device_made
# With one thread for all connections, a connection that never pauses would silence the whole server.
start server "$BIN/blobstore" -v serve --threads 1 --root "$SCRATCH/store" --listen "rdma://$ADDR:20100" --listen "tcp://$ADDR:20101"
eventually 10 grep -q "tcp://$ADDR:20101" "$SCRATCH/server.out" || fail "blobstore does not listen: $(last_words server)"
has_listened_again() { [ "$(grep -c 'listening again' "$SCRATCH/server.out")" -ge "$1" ]; }
for round in {1..6}; do
  log "round $round"
  load_started "rdma://$ADDR:20100,tcp://$ADDR:20101"
  goes_on 20 1 "RDMA .* to $ADDR:20100"
  rail_removed "$DEVICE"
  goes_on 20 1 "TCP .* to $ADDR:20101"
  stop load
  device_made
  eventually 30 has_listened_again "$round" || fail "round $round: the server does not listen again: $(last_words server)"
done
