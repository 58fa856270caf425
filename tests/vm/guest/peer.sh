# Functions for cases in which rpcrdma-peer tests Linux. Their reports are beside the logs of the cases. A requirement that Linux violates
# fails no case, because this project cannot repair it; the peer must only be able to run, and Linux must work afterwards.

# peer_runs SECONDS REPORT ARGUMENTS..: runs rpcrdma-peer, and prints the totals of its report
peer_runs() {
  local limit=$1 report=$2 code=0
  shift 2
  log "rpcrdma-peer $*"
  timeout --kill-after=5 "$limit" "$BIN/rpcrdma-peer@verbs-dlopen" "$@" --markdown -o "/out/$report.md" >"$SCRATCH/peer.out" 2>&1 || code=$?
  cat "$SCRATCH/peer.out"
  # What the clients said that the peer started.
  [ ! -e "$SCRATCH/client.log" ] || tail -n 20 "$SCRATCH/client.log"
  [ $code -le 1 ] || fail "rpcrdma-peer ended with code $code; last words: $(last_words peer)"
  [ "$(grep -c '^| `' "/out/$report.md")" -ge "${MIN_FINDINGS:-30}" ] || fail "there are few findings in $report.md"
}
