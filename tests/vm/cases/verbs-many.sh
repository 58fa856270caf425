# about: 64 connections to one server (--long: 1,000), each with Receives of its own and with shared ones: data, and memory per connection
# fabric: rxe
# programs: blobstore
# timeout: 400
ulimit -n 65536
case $EXTENT in long) connections=1000 ;; *) connections=64 ;; esac
port=20100

# The memory of the server in KiB: resident, and registered with the device
resident() { awk '/^VmRSS:/ { print $2 }' "/proc/${PID[server]}/status"; }
registered() {
  rdma resource show mr | awk -v pid="${PID[server]}" '
    { own = 0; for (n = 1; n < NF; n++) if ($n == "pid" && $(n + 1) == pid) own = 1
      for (n = 1; n < NF; n++) if (own && $n == "mrlen") sum += $(n + 1) }
    END { printf "%d\n", sum / 1024 }'
}

# measure NAME URL: serves the connections, and logs the memory of the server for each of them
measure() {
  local name=$1 url=$2 before_resident before_registered idle_resident idle_registered
  mkdir -p "$SCRATCH/store"
  start server "${server:-$BIN/blobstore}" serve --root "$SCRATCH/store" --listen "$url"
  eventually 10 grep -q "$ADDR:$port" "$SCRATCH/server.out" || fail "$name: blobstore does not listen: $(last_words server)"
  before_resident=$(resident) before_registered=$(registered)
  start client "$BIN/blobstore" many "rdma://$ADDR:$port" --connections $connections --rounds 2 --idle 3
  eventually 240 grep -q 'connections are open' "$SCRATCH/client.out" || fail "$name: no $connections connections: $(last_words client)"
  idle_resident=$(resident) idle_registered=$(registered)
  eventually 240 grep -q 'is correct' "$SCRATCH/client.out" || fail "$name: $(last_words client)"
  log "$name: $connections connections, KiB for each: resident $(((idle_resident - before_resident) / connections)) idle," \
    "$((($(resident) - before_resident) / connections)) after the calls; registered $(((idle_registered - before_registered) / connections))" \
    "idle, $((($(registered) - before_registered) / connections)) after the calls; files open $(ls "/proc/${PID[server]}/fd" | wc -l)"
  SHARE=$(($(registered) - before_registered))
  finish client 30
  stop server
  port=$((port + 1))
}

measure own "rdma://$ADDR:$port"
own=$SHARE
measure shared "rdma://$ADDR:$port?srq=1024"
log "registered memory in KiB: own $own, shared $SHARE"
[ $((SHARE * 2)) -lt "$own" ] || fail "shared Receives take $SHARE KiB, and own ones $own KiB"
