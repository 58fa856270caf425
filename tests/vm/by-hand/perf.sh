# about: a table, for a machine that does nothing else and --jobs 1: a null call beside ib_send_lat on two processors, woken and polling
# fabric: rxe siw
# programs: blobstore
# timeout: 180
. /suite/guest/perf.sh
table "figure" "raw" "rpcrdma" "ratio" "aim"

# Of those there are.
median() { printf '%s\n' "$@" | grep -vx -- - | sort -n | awk '{ v[NR] = $1 } END { print NR ? v[int((NR + 1) / 2)] : "-" }'; }

# null HOW URL FEW MANY OPTIONS..: a row, beside ib_send_lat with OPTIONS
null() {
  local how=$1 url=$2 few=$3 many=$4 raws=() nulls=() ratios=()
  shift 4
  # In turn, so that what else the machine does meets both alike.
  for _ in {1..5}; do
    raws+=("$(each "$(raw ib_send_lat "$few" "$many" -s 100 "$@")")")
    bench "$url" --seconds 0.3 --size 1KiB --depth 1
    nulls+=("$(measured null 1 p50)")
    ratios+=("$(ratio "${nulls[-1]}" "${raws[-1]}")")
  done
  log "$how: raw ${raws[*]}; rpcrdma ${nulls[*]}; ratios ${ratios[*]}"
  row "null call, $how, rdma, median (us)" "$(median "${raws[@]}")" "$(median "${nulls[@]}")" "$(median "${ratios[@]}")" "<= 1.3"
}
null "woken by events" "rdma://$ADDR:20100" 200 2200 -e
null "busy polling" "rdma://$ADDR:20100?busy=1000" 1000 9000
log "results"
cat "$REPORT"
