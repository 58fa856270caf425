# about: a table, for a machine that does nothing else and --jobs 1: a null call beside ib_send_lat, both by busy polling, on two processors
# fabric: rxe siw
# programs: blobstore
# timeout: 90
. /suite/guest/perf.sh
table "figure" "raw" "rpcrdma" "ratio" "aim"
raws=() nulls=() ratios=()
# In turn, so that what else the machine does meets both alike.
for _ in 1 2 3; do
  raws+=("$(each "$(raw ib_send_lat 1000 9000 -s 100)")")
  bench "rdma://$ADDR:20100?busy=1000" --seconds 0.15 --size 1KiB --depth 1
  nulls+=("$(measured null 1 p50)")
  ratios+=("$(ratio "${nulls[-1]}" "${raws[-1]}")")
done
log "raw: ${raws[*]}; rpcrdma: ${nulls[*]}; ratios: ${ratios[*]}"
# Of those there are.
median() { printf '%s\n' "$@" | grep -vx -- - | sort -n | awk '{ v[NR] = $1 } END { print NR ? v[int((NR + 1) / 2)] : "-" }'; }
row "null call, busy polling, rdma, median (us)" "$(median "${raws[@]}")" "$(median "${nulls[@]}")" "$(median "${ratios[@]}")" "<= 1.3"
log "results"
cat "$REPORT"
