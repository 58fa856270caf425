# about: a table, no verdict: 1 MiB get and put beside ib_read_bw and ib_write_bw, a null call beside ib_send_lat, nfscp beside Linux's client
# fabric: rxe siw
# programs: blobstore nfscp
# timeout: 120
. /suite/guest/nfscp-knfsd.sh
report=/out/$FABRIC-perf.md
seconds=1
# Userspace iWARP finds a peer on siw only.
case $FABRIC in siw) schemes='rdma iwarp' ;; *) schemes=rdma ;; esac

# raw COMMAND COLUMN OPTIONS..: a figure of perftest's line, of a pair of its own through rdma_cm; - if there is none. In
# about 1 connection of 100 siw overlooks a first message, and on a busy machine perftest does not find out how fast the
# processor's clock is: then once more.
raw_port=18500
raw() {
  local command=$1 column=$2 figure
  shift 2
  for _ in 1 2 3; do
    raw_port=$((raw_port + 1))
    start "$command" "$command" -R -F -p $raw_port "$@" >&2
    eventually 10 listening $raw_port || fail "$command does not listen: $(last_words "$command")"
    timeout --kill-after=2 12 "$command" -R -F -p $raw_port "$@" "$ADDR" >"$SCRATCH/raw.out" 2>&1 || true
    cat "$SCRATCH/raw.out" >&2
    stop "$command"
    figure=$(awk -v column="$column" '/^ *[0-9]+ +[0-9]+ +[0-9.]+ +[0-9.]+/ { print $column }' "$SCRATCH/raw.out" | tail -n 1)
    case $figure in '' | 0 | 0.00) ;; *) break ;; esac
  done
  echo "${figure:--}"
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
# How many messages of 1 MiB went by in the second between one second before and one after; typical latency, one way.
read_bw=$(raw ib_read_bw 2 -s 1048576 -D 3 -f 1)
write_bw=$(raw ib_write_bw 2 -s 1048576 -D 3 -f 1)
latency=$(raw ib_send_lat 5 -s 100 -n 1000)
log "ib_read_bw $read_bw MiB/s, ib_write_bw $write_bw MiB/s, ib_send_lat $latency us one way"

for scheme in $schemes; do
  log "blobstore by $scheme"
  start store "$BIN/blobstore" serve --root "$SCRATCH/blobs" --listen "$scheme://$ADDR:20100"
  eventually 10 grep -q listening "$SCRATCH/store.out" || fail "blobstore does not listen: $(last_words store)"
  try 60 "$BIN/blobstore" bench "$scheme://$ADDR:20100" --seconds $seconds --size 1MiB --depth 8 --json
  get=$(scale "$(measured get 8 octets_per_second)" 9.5367e-7)
  put=$(scale "$(measured write 8 octets_per_second)" 9.5367e-7)
  null=$(measured null 1 p50)
  # What the server writes by RDMA Write is a get; what it fetches by RDMA Read is a put.
  row "get 1 MiB, 8 at a time, $scheme (MiB/s)" "$write_bw" "$get" "$(ratio "$get" "$write_bw")" ">= 0.95"
  row "put 1 MiB, 8 at a time, $scheme (MiB/s)" "$read_bw" "$put" "$(ratio "$put" "$read_bw")" ">= 0.95"
  pair=$(scale "$latency" 2)
  row "null call, one at a time, $scheme, median (us)" "$pair" "$null" "$(ratio "$null" "$pair")" "<= 1.3"
  stop store
done

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
