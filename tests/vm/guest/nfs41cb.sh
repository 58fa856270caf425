# nfs41cb_recall URL: with the export of knfsd_up: gets a read delegation, makes a conflicting local write, and expects its
# recall over the client's connection and its return. Without the return, the write would wait for a lease period.

nfs41cb_recall() {
  local url=$1 begun
  echo before >/srv/nfs/delegated
  start nfs41cb "$BIN/nfs41cb" "$url" delegated --wait 70
  # Not before the end of the lock manager's grace period, which cannot be ended by hand.
  eventually 75 grep -q '^delegated' "$SCRATCH/nfs41cb.out" || fail "no delegation; last words: $(last_words nfs41cb)"
  begun=${EPOCHREALTIME/./}
  log "writing to the delegated file"
  timeout 40 bash -c 'echo after >/srv/nfs/delegated' || fail "the write is blocked; last words: $(last_words nfs41cb)"
  log "written after $(((${EPOCHREALTIME/./} - begun) / 1000)) ms"
  finish nfs41cb 30
  cat "$SCRATCH/nfs41cb.out"
  grep -q '^CB_SEQUENCE' "$SCRATCH/nfs41cb.out" || fail "the server sent no CB_SEQUENCE"
  grep -q '^CB_RECALL' "$SCRATCH/nfs41cb.out" || fail "the server sent no CB_RECALL"
  # More than one call in each direction.
  grep -Eq '^ended     [0-9]+ calls sent, [1-9][0-9]* calls received' "$SCRATCH/nfs41cb.out" || fail "$(last_words nfs41cb)"
  [ "$(cat /srv/nfs/delegated)" = after ] || fail "the written data is missing"
}
