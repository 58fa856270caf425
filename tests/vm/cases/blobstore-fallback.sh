# about: a client of rdma:// and tcp:// uses TCP while the RDMA device is gone, and RDMA again when it is back; no idempotent call fails
# fabric: rxe siw
# alternate: yes
# programs: blobstore
# timeout: 400
. /suite/guest/load.sh
# librdmacm closes a removed device only if there is another one.
other_device_made
start server "$BIN/blobstore" -v serve --root "$SCRATCH/store" --listen "rdma://$ADDR:20100" --listen "tcp://$ADDR:20101"
eventually 10 grep -q "tcp://$ADDR:20101" "$SCRATCH/server.out" || fail "blobstore does not listen: $(last_words server)"

load_started "rdma://$ADDR:20100,tcp://$ADDR:20101"
goes_on 60 1 "RDMA .* to $ADDR:20100"

log "the RDMA device is removed under load"
rail_removed "$DEVICE"
goes_on 60 1 "TCP .* to $ADDR:20101"
eventually 60 grep -q "not used: rdma://$ADDR:20100" "$SCRATCH/load.out" || fail "the client does not say why it uses TCP"
log "$(grep 'not used' "$SCRATCH/load.out" | tail -n 1)"

log "the device is back"
device_made
# The client tries the better path at least once per minute.
goes_on 120 1 "RDMA .* to $ADDR:20100"
grep -q 'listening again' "$SCRATCH/server.out" || fail "the server did not notice the removal, the case shows nothing"
load_finished
