# about: a table, for an idle machine and --jobs 1, on two processors: a null call compared with ib_send_lat, by events and polling; get and put
# fabric: rxe siw
# programs: blobstore
# timeout: 600
. /suite/guest/perf.sh
table "figure" "raw" "rpcrdma" "ratio" "aim"

# null HOW URL FEW MANY OPTIONS..: adds a row that compares a null call with ib_send_lat OPTIONS
null() {
  local how=$1 url=$2 few=$3 many=$4 raws=() nulls=() ratios=()
  shift 4
  # Alternate, so that other load affects both alike.
  for _ in {1..5}; do
    raws+=("$(each "$(raw ib_send_lat "$few" "$many" -s 100 "$@")")")
    bench "$url" --seconds 0.3 --size 1KiB --depth 1
    nulls+=("$(measured null 1 p50)")
    ratios+=("$(ratio "${nulls[-1]}" "${raws[-1]}")")
  done
  log "$how: raw ${raws[*]}; rpcrdma ${nulls[*]}; ratios ${ratios[*]}"
  row "null call, $how, rdma, median (us)" "$(median "${raws[@]}")" "$(median "${nulls[@]}")" "$(median "${ratios[@]}")" "<= 1.3"
}
# transfer WHAT KEY FEW MANY COMMAND OPTIONS..: adds a row that compares MiB/s with perftest's COMMAND
transfer() {
  local what=$1 key=$2 few=$3 many=$4 raws=() ours=() ratios=()
  shift 4
  for _ in {1..5}; do
    # A server that polls for the last message must not take the processor from the transfer.
    serving=(nice -n 19)
    raws+=("$(raw "$1" "$few" "$many" -s 1048576 -t 8 "${@:2}")")
    serving=()
    bench "rdma://$ADDR:20100" --seconds 1 --size 1MiB --depth 8
    ours+=("$(scale "$(measured "$key" 8 bytes_per_second)" 9.5367e-7)")
    ratios+=("$(ratio "${ours[-1]}" "${raws[-1]}")")
  done
  log "$what: raw ${raws[*]}; rpcrdma ${ours[*]}; ratios ${ratios[*]}"
  row "$what 1 MiB, 8 at a time, rdma (MiB/s)" "$(median "${raws[@]}")" "$(median "${ours[@]}")" "$(median "${ratios[@]}")" ">= 0.95"
}
case $FABRIC in siw) few=50 many=350 ;; *) few=8 many=40 ;; esac
transfer get get $few $many ib_write_bw -Q 1
transfer put write $few $many ib_read_bw -e
null "woken by events" "rdma://$ADDR:20100" 200 2200 -e
null "busy polling" "rdma://$ADDR:20100?busy=1000" 1000 9000
log "results"
cat "$REPORT"
