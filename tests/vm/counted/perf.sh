# about: a table without verdict: get and put compared with ib_write_bw and ib_read_bw, a null call with ib_send_lat, nfscp with Linux's client
# fabric: rxe siw
# programs: blobstore nfscp
# timeout: 180
# clock: counted
. /suite/guest/nfscp-knfsd.sh
. /suite/guest/perf.sh
# Userspace iWARP has a peer only with siw.
case $FABRIC in siw) schemes='rdma iwarp' ;; *) schemes=rdma ;; esac
table "figure" "raw" "rpcrdma" "ratio" "aim"
# Reading files takes real time, which the counted clock does not measure. Read them before the measurements.
cat "$BIN"/{blobstore,nfscp} >/dev/null

# figure COLUMN COMMAND COUNT SIZE OPTIONS..: perftest's own result. Its servers of RDMA Read and Write poll for the client's
# last message and would take half of the only processor, so they run at low priority. That makes the time before and after
# the transfer long and variable. perftest's own figures are correct with this clock, as with KVM's.
serving=(nice -n 19)
figure() {
  for _ in 1 2; do
    if raw_once "$2" "$3" -s "$4" "${@:5}" >/dev/null; then
      awk -v column="$1" -v size="$4" '$1 == size { print $column }' "$SCRATCH/raw.out"
      return
    fi
  done
  echo -
}
log "perftest"
read_bw=$(figure 4 ib_read_bw 48 1048576 -t 8 -e)
# ib_write_bw has no -e. Each Write is signalled, like ours over siw.
write_bw=$(figure 4 ib_write_bw 48 1048576 -t 8 -Q 1)
serving=()
# The median of one direction, doubled.
pair=$(scale "$(figure 5 ib_send_lat 400 100 -e)" 2)
log "ib_read_bw $read_bw MiB/s, ib_write_bw $write_bw MiB/s, ib_send_lat $pair us a pair"

null() { # null WHAT: adds a row
  local median
  median=$(measured null 1 p50)
  row "null call, woken by events, $1, median (us)" "$pair" "$median" "$(ratio "$median" "$pair")" "<= 1.3"
}
for scheme in $schemes; do
  log "blobstore by $scheme"
  bench "$scheme://$ADDR:20100" --seconds 0.15 --size 1MiB --depth 8
  get=$(scale "$(measured get 8 bytes_per_second)" 9.5367e-7)
  put=$(scale "$(measured write 8 bytes_per_second)" 9.5367e-7)
  # The server performs a get by RDMA Write and a put by RDMA Read.
  row "get 1 MiB, 8 at a time, $scheme (MiB/s)" "$write_bw" "$get" "$(ratio "$get" "$write_bw")" ">= 0.95"
  row "put 1 MiB, 8 at a time, $scheme (MiB/s)" "$read_bw" "$put" "$(ratio "$put" "$read_bw")" ">= 0.95"
  null "$scheme, version $(number rpcrdma_version)"
done
log "blobstore by rdma, version 1"
bench "rdma://$ADDR:20100" --seconds 0.1 --size 1KiB --depth 1 --rpcrdma-version 1
null "rdma, version $(number rpcrdma_version)"

log "Linux's client and nfscp read the same file from the same server"
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
  ours=$(scale "$(number bytes_per_second)" 9.5367e-7)
  cmp copy/nfscp /srv/nfs/file
  rm copy/nfscp
  row "64 MiB file of Linux's server, $scheme (MiB/s): Linux's client, nfscp" "$linux" "$ours" "$(ratio "$ours" "$linux")" ""
done
log "results"
cat "$REPORT"
