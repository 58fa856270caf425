# about: blobstore and rpcping over rdma:// on a device, IPv4, IPv6, busy polling and shared Receives, a runtime per thread, both versions of RPC-over-RDMA, callbacks; and over tcp:// and iwarp:// of the same server
# fabric: rxe siw
# alternate: yes
# programs: blobstore rpcping
# timeout: 180
start server "$BIN/blobstore" serve --root "$SCRATCH/store" --listen "rdma://$ADDR:20100" --listen "rdma://[$ADDR6]:20100" \
  --listen "tcp://$ADDR:20101" --listen "iwarp://$ADDR:20102" --listen "rdma://$ADDR:20103?srq=64"
eventually 10 grep -q "rdma://$ADDR:20103" "$SCRATCH/server.out" || fail "blobstore does not listen: $(last_words server)"

urls=("rdma://$ADDR:20100" "rdma://[$ADDR6]:20100" "rdma://$ADDR:20100?busy=50" "tcp://$ADDR:20101" "iwarp://$ADDR:20102"
  "rdma://$ADDR:20103")
for url in "${urls[@]}"; do try 15 "$BIN/rpcping" "$url" --program 0x20100b10 --version 1 -c 20 -i 0; done

round=0 stored=0
for url in "${urls[@]}"; do
  round=$((round + 1))
  # With emulation every process takes a second, so test all sizes only once.
  case $round in 1) sizes="0 1 4095 65537 1000003 $((8 << 20))" ;; *) sizes="1 $((8 << 20))" ;; esac
  for size in $sizes; do
    head -c "$size" /dev/urandom >"$SCRATCH/in"
    try 30 "$BIN/blobstore" put "$url" "$round/$size" "$SCRATCH/in"
    stored=$((stored + 1))
    try 30 "$BIN/blobstore" get "${urls[$((round % ${#urls[@]}))]}" "$round/$size" "$SCRATCH/out"
    cmp "$SCRATCH/in" "$SCRATCH/out" || fail "$url: $size bytes differ after put and get"
  done
done

log "both versions: calls, callbacks while files are fetched, and lists"
for version in 1 2; do
  pinned=("rdma://$ADDR:20100" --rpcrdma-version "$version")
  try 15 "$BIN/rpcping" "${pinned[@]}" --program 0x20100b10 --version 1 -c 5 -i 0
  start "watch$version" "$BIN/blobstore" watch "${pinned[@]}" "w$version/" --into "$SCRATCH/mirror$version" --count 3
  eventually 10 grep -q '^watching' "$SCRATCH/watch$version.out" || fail "not watching: $(last_words "watch$version")"
  for size in 100 70001 3000001; do
    head -c "$size" /dev/urandom >"$SCRATCH/in$size"
    try 30 "$BIN/blobstore" put "${pinned[@]}" "w$version/$size" "$SCRATCH/in$size"
    stored=$((stored + 1))
  done
  finish "watch$version" 30
  for size in 100 70001 3000001; do
    cmp "$SCRATCH/in$size" "$SCRATCH/mirror$version/w$version/$size" || fail "version $version: the mirror of $size bytes differs"
  done
  try 15 "$BIN/blobstore" ls "${pinned[@]}"
  [ "$(wc -l <"$SCRATCH/try.out")" -ge $stored ] || fail "version $version: fewer names than the $stored files stored"
done

log "a client is killed during a transfer; the others continue, and nothing leaks"
start victim "$BIN/blobstore" bench "rdma://$ADDR:20100"
sleep 2
kill -9 "${PID[victim]}"
try 15 "$BIN/rpcping" "rdma://$ADDR:20100" --program 0x20100b10 --version 1 -c 5 -i 0
ended_process "${PID[server]}" && fail "the server ended: $(last_words server)"
queue_pairs_gone() { ! rdma resource show qp | grep -q 'type RC'; }
eventually 10 queue_pairs_gone || fail "queue pairs are left: $(rdma resource show qp | grep 'type RC' | head -n 1)"
stop server
# The kernel's list of the server's memory regions is empty after its end.
regions_gone() { ! rdma resource show mr | grep -q blobstore; }
eventually 10 regions_gone || fail "memory regions are left"

log "a runtime for each of two threads, with own and with shared Receives"
start threads "$BIN/blobstore" serve --root "$SCRATCH/store" --threads 2 --runtime-per-thread --listen "rdma://$ADDR:20104" \
  --listen "rdma://$ADDR:20105?srq=64"
eventually 10 grep -q "rdma://$ADDR:20105" "$SCRATCH/threads.out" || fail "blobstore does not listen: $(last_words threads)"
# switches THREAD: prints how often a thread of the server has waited
switches() {
  awk -v thread="$1" '$1 == "Name:" { is = $2 == thread } is && $1 == "voluntary_ctxt_switches:" { print $2 }' \
    "/proc/${PID[threads]}/task"/*/status
}
rounds=40
for port in 20104 20105; do
  eventually 10 queue_pairs_gone || fail "port $port: queue pairs are left: $(rdma resource show qp | grep 'type RC' | head -n 1)"
  # The first thread also accepts connections.
  start many "$BIN/blobstore" many "rdma://$ADDR:$port" --connections 4 --rounds $rounds --idle 2
  eventually 60 grep -q 'connections are open' "$SCRATCH/many.out" || fail "no 4 connections: $(last_words many)"
  first=$(switches blobstore) second=$(switches serving-1)
  # The kernel names the thread that has created a queue.
  log "$(rdma resource show qp | grep 'type RC')"
  [ "$(rdma resource show qp | grep -c 'type RC.* comm serving-1')" -eq 2 ] || fail "port $port: a thread does not have half of the connections"
  if [ "$FABRIC/$port" = rxe/20105 ]; then
    # The shared receive queue of a thread belongs to a protection domain, which its queue pairs share. A client's have their own.
    [ "$(rdma resource show qp | grep 'type RC' | grep -oE 'pdn [0-9]+' | sort | uniq -c | awk '$1 == 2' | wc -l)" -eq 2 ] ||
      fail "the threads do not have a shared receive queue each"
  fi
  finish many 120
  first=$(($(switches blobstore) - first)) second=$(($(switches serving-1) - second))
  log "port $port: the threads waited $first and $second times in $rounds rounds"
  # In each round, each connection waits for three calls. A thread without connections has no reason to run.
  [ $first -ge $rounds ] && [ $second -ge $rounds ] || fail "port $port: a thread did not serve"
done
stop threads
eventually 10 regions_gone || fail "memory regions of the two threads are left"
