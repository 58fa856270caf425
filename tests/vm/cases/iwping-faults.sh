# about: userspace iWARP when the peer is absent, not iWARP, killed, or violates the limits: an error in time, and the next peer is served
# fabric: siw
# programs: iwping
# timeout: 90
capture iwping-faults

log "no server"
refuse 10 'cannot connect' "$BIN/iwping" client "$ADDR:7300"

log "a TCP service that is not iWARP"
rpcbind -w
refuse 15 'does not speak iWARP' "$BIN/iwping" client "$ADDR:111"

log "a ping larger than rping's buffer: its RDMA Read fails locally"
start small rping -s -a "$ADDR" -p 7301 -S 64
eventually 5 listening 7301
refuse 15 'closed the connection|the connection closed' "$BIN/iwping" client "$ADDR:7301" --size 4096

log "rping's server is killed in the middle"
start server rping -s -P -a "$ADDR" -p 7302 -S 4096
eventually 5 listening 7302
start client "$BIN/iwping" client "$ADDR:7302" --size 4096 --count 1000000
sleep 1
kill -9 "${PID[server]}"
eventually 10 ended_process "${PID[client]}" || fail "iwping still runs 10 s after its peer was killed"
! wait "${PID[client]}" || fail "iwping reports success although its peer was killed"
grep -qE 'closed the connection|the connection closed' "$SCRATCH/client.out" || fail "iwping says: $(last_words client)"

log "a killed client and a client with too large pings do not disturb the others"
start iwping "$BIN/iwping" server "$ADDR:7303" --max-size 4096
eventually 5 grep -q listening "$SCRATCH/iwping.out"
start victim rping -c -a "$ADDR" -p 7303 -S 1000
start steady rping -c -v -V -a "$ADDR" -p 7303 -S 4096 -C 100
sleep 1
kill -9 "${PID[victim]}"
rping_client 15 5 -a "$ADDR" -p 7303
try 15 rping -c -v -a "$ADDR" -p 7303 -S 8192 -C 5
! grep -q '^ping data' try.out || fail "a ping larger than --max-size got a reply"
eventually 5 grep -q 'the limit is 4096' "$SCRATCH/iwping.out" || fail "iwping does not say why it refused: $(last_words iwping)"
rping_client 15 5 -a "$ADDR" -p 7303
finish steady 20
[ "$(grep -c '^ping data' "$SCRATCH/steady.out")" -eq 100 ] || fail "a client was disturbed: $(last_words steady | cut -c 1-200)"
ended_process "${PID[iwping]}" && fail "iwping's server ended: $(last_words iwping)"
stop iwping
