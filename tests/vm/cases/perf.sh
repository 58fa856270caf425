# about: a table, no verdict: 1 MiB get and put beside ib_read_bw and ib_write_bw, a null call beside ib_send_lat, nfscp beside Linux's client
# fabric: rxe siw
# programs: blobstore nfscp
# timeout: 300
. /suite/guest/nfscp-knfsd.sh
report=/out/perf.md
seconds=1
# Userspace iWARP finds a peer on siw only.
case $FABRIC in siw) schemes='rdma iwarp' ;; *) schemes=rdma ;; esac

# raw COMMAND FEW MANY OPTIONS..: how often in a second perftest did it. Its own figures hang on how fast it takes the
# processor's clock to be, and go wrong under emulation; so the wall clock times a run of FEW and one of MANY, each of a pair
# of its own through rdma_cm, and what they have beside the work, the same in both, goes out. In about 1 connection of 100
# siw overlooks a first message: then once more.
raw_port=18500
raw_once() { # raw_once COMMAND COUNT OPTIONS..: microseconds
  local command=$1 count=$2 begun status
  shift 2
  raw_port=$((raw_port + 1))
  start "$command" "$command" -R -F -p $raw_port -n "$count" "$@" >&2
  eventually 10 listening $raw_port || fail "$command does not listen: $(last_words "$command")"
  begun=${EPOCHREALTIME//./}
  timeout --kill-after=2 30 "$command" -R -F -p $raw_port -n "$count" "$@" "$ADDR" >"$SCRATCH/raw.out" 2>&1
  status=$?
  echo $((${EPOCHREALTIME//./} - begun))
  cat "$SCRATCH/raw.out" >&2
  stop "$command"
  return $status
}
raw() {
  local command=$1 few=$2 many=$3 short long
  shift 3
  for _ in 1 2; do
    if short=$(raw_once "$command" "$few" "$@") && long=$(raw_once "$command" "$many" "$@") && [ "$long" -gt "$short" ]; then
      awk -v n=$((many - few)) -v t=$((long - short)) 'BEGIN { printf "%.1f", n / t * 1e6 }'
      return
    fi
  done
  echo -
}

# measured NAME DEPTH KEY: of blobstore's JSON in try.out
measured() {
  awk -v name="\"$1\"," -v depth="$2," -v key="\"$3\":" '
    $1 == "\"name\":" { this = ($2 == name) } $1 == "\"depth\":" && $2 != depth { this = 0 }
    this && $1 == key { sub(",", "", $2); print $2; exit }' "$SCRATCH/try.out"
}
ratio() { awk -v a="$1" -v b="$2" 'BEGIN { if (b > 0) printf "%.3f", a / b; else print "-" }'; }
row() { printf '|'; printf ' %s |' "$@"; echo; } >>"$report"
scale() { awk -v x="$1" -v by="$2" 'BEGIN { printf "%.1f", x * by }'; }

echo "Linux $(uname -r) in a guest, $DEVICE, $(nproc) processors; $(grep -m 1 '^model name' /proc/cpuinfo | cut -d: -f2)" >"$report"
echo >>"$report"
row "figure" "raw" "rpcrdma" "ratio" "aim"
row "---" "---" "---" "---" "---"

log "perftest"
read_bw=$(raw ib_read_bw 16 144 -s 1048576 -t 8)
write_bw=$(raw ib_write_bw 16 144 -s 1048576 -t 8)
pairs=$(raw ib_send_lat 100 1600 -s 100)
pairs_woken=$(raw ib_send_lat 100 700 -s 100 -e)
log "ib_read_bw $read_bw MiB/s, ib_write_bw $write_bw MiB/s, ib_send_lat $pairs pairs/s, $pairs_woken with events"
pair() { awk -v n="$1" 'BEGIN { if (n > 0) printf "%.1f", 1e6 / n; else print "-" }'; }

for scheme in $schemes; do
  log "blobstore by $scheme"
  start store "$BIN/blobstore" serve --threads 1 --root "$SCRATCH/blobs" --listen "$scheme://$ADDR:20100"
  eventually 10 grep -q listening "$SCRATCH/store.out" || fail "blobstore does not listen: $(last_words store)"
  try 60 "$BIN/blobstore" bench "$scheme://$ADDR:20100" --seconds $seconds --size 1MiB --depth 8 --json
  get=$(scale "$(measured get 8 octets_per_second)" 9.5367e-7)
  put=$(scale "$(measured write 8 octets_per_second)" 9.5367e-7)
  null=$(measured null 1 p50)
  # What the server writes by RDMA Write is a get; what it fetches by RDMA Read is a put.
  row "get 1 MiB, 8 at a time, $scheme (MiB/s)" "$write_bw" "$get" "$(ratio "$get" "$write_bw")" ">= 0.95"
  row "put 1 MiB, 8 at a time, $scheme (MiB/s)" "$read_bw" "$put" "$(ratio "$put" "$read_bw")" ">= 0.95"
  row "null call, woken by events, $scheme, median (us)" "$(pair "$pairs_woken")" "$null" "$(ratio "$null" "$(pair "$pairs_woken")")" "<= 1.3"
  stop store
done
log "blobstore by rdma, busy polling"
start store "$BIN/blobstore" serve --threads 1 --root "$SCRATCH/blobs" --listen "rdma://$ADDR:20100?busy=1000"
eventually 10 grep -q listening "$SCRATCH/store.out" || fail "blobstore does not listen: $(last_words store)"
try 60 "$BIN/blobstore" bench "rdma://$ADDR:20100?busy=1000" --seconds $seconds --size 1KiB --depth 1 --json
null=$(measured null 1 p50)
row "null call, busy polling, rdma, median (us)" "$(pair "$pairs")" "$null" "$(ratio "$null" "$(pair "$pairs")")" "<= 1.3"
stop store

log "Linux's client and nfscp, the same file of the same server"
knfsd_up
head -c $((64 << 20)) /dev/urandom >/srv/nfs/file
mkdir copy
nfs_mount 3 "$SCRATCH/mnt" rsize=524288
rate() { grep -o '[0-9.]* [kMG]B/s' "$SCRATCH/try.out" | tail -n 1 | awk '{ f["kB/s"] = 1e3; f["MB/s"] = 1e6; f["GB/s"] = 1e9; printf "%.1f", $1 * f[$2] / 1048576 }'; }
try 60 dd if="$SCRATCH/mnt/file" of=copy/linux bs=1M
linux=$(rate)
umount "$SCRATCH/mnt"
for scheme in $schemes; do
  try 60 "$BIN/nfscp" --json "nfs3+$scheme://$ADDR:20049/srv/nfs/file" copy/nfscp
  ours=$(scale "$(number octets_per_second)" 9.5367e-7)
  cmp copy/nfscp /srv/nfs/file
  rm copy/nfscp
  row "64 MiB file of Linux's server, $scheme (MiB/s): Linux's client, nfscp" "$linux" "$ours" "$(ratio "$ours" "$linux")" ""
done
log "results"
cat "$report"
