# Figures compared with those of perftest, in a table next to the case's log: $REPORT.
REPORT=/out/$CASE.md

# raw COMMAND FEW MANY OPTIONS..: prints how many operations per second perftest made. Its own figures depend on its estimate of
# the processor's clock rate, which is wrong with emulation. So the wall clock times a run of FEW operations and one of MANY,
# each with a new pair of processes that connects through rdma_cm. The difference cancels the constant overhead. siw misses the
# first message of about 1 connection in 100; then the run is repeated.
raw_port=18500
serving=() # a command prefix for perftest's servers
raw_once() { # raw_once COMMAND COUNT OPTIONS..: prints microseconds
  local command=$1 count=$2 begun status
  shift 2
  raw_port=$((raw_port + 1))
  start "$command" "${serving[@]}" "$command" -R -F -p $raw_port -n "$count" "$@" >&2
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

# bench URL OPTIONS..: starts blobstore's server without files at URL, and runs its benchmark with OPTIONS; the JSON is in
# try.out
bench() {
  local url=$1
  shift
  start store "$BIN/blobstore" bench-server --listen "$url"
  eventually 10 grep -q listening "$SCRATCH/store.out" || fail "blobstore does not listen: $(last_words store)"
  try 60 "$BIN/blobstore" bench "$url" --json "$@"
  stop store
}
# measured NAME DEPTH KEY: prints a value of blobstore's JSON in try.out
measured() {
  awk -v name="\"$1\"," -v depth="$2," -v key="\"$3\":" '
    $1 == "\"name\":" { this = ($2 == name) } $1 == "\"depth\":" && $2 != depth { this = 0 }
    this && $1 == key { sub(",", "", $2); print $2; exit }' "$SCRATCH/try.out"
}

each() { awk -v n="$1" 'BEGIN { if (n > 0) printf "%.1f", 1e6 / n; else print "-" }'; } # each RATE: prints microseconds
ratio() { awk -v a="$1" -v b="$2" 'BEGIN { if (b > 0) printf "%.3f", a / b; else print "-" }'; }
scale() { awk -v x="$1" -v by="$2" 'BEGIN { printf "%.1f", x * by }'; }
# Median of the available values.
median() { printf '%s\n' "$@" | grep -vx -- - | sort -n | awk '{ v[NR] = $1 } END { print NR ? v[int((NR + 1) / 2)] : "-" }'; }
row() { printf '|'; printf ' %s |' "$@"; echo; } >>"$REPORT"
table() { # table COLUMN..: begins the report
  echo "Linux $(uname -r) in a guest, $DEVICE, processors: $(nproc), clock: $CLOCK; $(grep -m 1 '^model name' /proc/cpuinfo | cut -d: -f2)" >"$REPORT"
  echo >>"$REPORT"
  row "$@"
  row "${@/*/---}"
}
