# about: 100 connections to one server (--long: 1,000), each with Receives of its own and with shared ones: data, and memory per connection
# fabric: rxe
# programs: blobstore
# timeout: 900
ulimit -n 65536
# More messages arrive at a time than there are shared Receives, so devices have to repeat some.
case $EXTENT in long) connections=1000 receives=256 ;; *) connections=100 receives=64 ;; esac
port=20100

# status KEY: a number of KiB from the status of the server
status() { awk -v key="$1:" '$1 == key { print $2 }' "/proc/${PID[server]}/status"; }

# measure NAME URL: serves the connections, and logs the memory of the server for each of them: resident, and locked for the
# device. $LOCKED is the locked memory after the calls.
measure() {
  local name=$1 url=$2 resident locked idle_resident idle_locked
  mkdir -p "$SCRATCH/store"
  start server "${server:-$BIN/blobstore}" serve --root "$SCRATCH/store" --listen "$url"
  eventually 10 grep -q "$ADDR:$port" "$SCRATCH/server.out" || fail "$name: blobstore does not listen: $(last_words server)"
  resident=$(status VmRSS) locked=$(status VmPin)
  start client "$BIN/blobstore" many "rdma://$ADDR:$port" --connections $connections --rounds 2 --idle 3
  eventually 300 grep -q 'connections are open' "$SCRATCH/client.out" || fail "$name: no $connections connections: $(last_words client)"
  idle_resident=$(status VmRSS) idle_locked=$(status VmPin)
  log "$name: $(rdma resource show "$DEVICE")"
  eventually 300 grep -q 'is correct' "$SCRATCH/client.out" || fail "$name: $(last_words client)"
  LOCKED=$(($(status VmPin) - locked))
  log "$name: $connections connections, KiB for each: resident $(((idle_resident - resident) / connections)) idle," \
    "$((($(status VmRSS) - resident) / connections)) after the calls; locked $(((idle_locked - locked) / connections)) idle," \
    "$((LOCKED / connections)) after the calls; $(ls "/proc/${PID[server]}/fd" | wc -l) files"
  finish client 60
  stop server
  port=$((port + 1))
}

measure own "rdma://$ADDR:$port"
own=$LOCKED
measure shared "rdma://$ADDR:$port?srq=$receives"
log "locked KiB: own $own, shared $LOCKED"
[ $((LOCKED * 2)) -lt "$own" ] || fail "with shared Receives $LOCKED KiB are locked, with own ones $own KiB"
