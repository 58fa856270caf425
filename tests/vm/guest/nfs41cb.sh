# nfs41cb_recall URL: against knfsd_up's export: a read delegation, a local write that conflicts with it, its recall over the
# connection that the client has made, and the delegation's return, without which the write would take a lease's time.

nfs41cb_recall() {
  local url=$1 begun
  echo before >/srv/nfs/delegated
  start nfs41cb "$BIN/nfs41cb" "$url" delegated --wait 70
  # Not before the lock manager's grace period is over, which is not ended by hand.
  eventually 75 grep -q '^delegated' "$SCRATCH/nfs41cb.out" || fail "no delegation; last words: $(last_words nfs41cb)"
  begun=${EPOCHREALTIME/./}
  log "writing to what is delegated"
  timeout 40 bash -c 'echo after >/srv/nfs/delegated' || fail "the write does not get through; last words: $(last_words nfs41cb)"
  log "written after $(((${EPOCHREALTIME/./} - begun) / 1000)) ms"
  finish nfs41cb 30
  cat "$SCRATCH/nfs41cb.out"
  grep -q '^CB_SEQUENCE' "$SCRATCH/nfs41cb.out" || fail "the server sent no CB_SEQUENCE"
  grep -q '^CB_RECALL' "$SCRATCH/nfs41cb.out" || fail "the server sent no CB_RECALL"
  # More than one call each way, or it was not both directions.
  grep -Eq '^ended     [0-9]+ calls sent, [1-9][0-9]* calls received' "$SCRATCH/nfs41cb.out" || fail "$(last_words nfs41cb)"
  [ "$(cat /srv/nfs/delegated)" = after ] || fail "what was written is not there"
}
