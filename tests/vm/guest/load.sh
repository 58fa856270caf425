# Functions for cases that keep a server under load with `blobstore load`, whose output is $SCRATCH/load.out. Its reports are the lines
#
#   SECONDS s  CONNECTION  CALLS calls  BYTES UNIT  TRANSPORT from ADDRESS to ADDRESS
#   SECONDS s  CONNECTION  CALLS calls  not connected: REASON

# load_started ARGUMENTS..: starts a client
load_started() {
  : >"$SCRATCH/load.out"
  start load "$BIN/blobstore" load "$@" --interval 0.5
  MARK=0
}

# mark: `reported` reads from here
mark() { MARK=$(wc -l <"$SCRATCH/load.out"); }

# reported CONNECTION PATTERN: succeeds if, since the mark, there are three reports with calls of the connection whose path matches. The
# first one may also count calls over an earlier path.
reported() {
  ! ended_process "${PID[load]}" || fail "the client has ended: $(last_words load)"
  tail -n +$((MARK + 1)) "$SCRATCH/load.out" |
    awk -v number="$1" -v path="$2" '$3 == number && $5 == "calls" && $4 > 0 && $0 ~ path { found++ } END { exit found < 3 }'
}

# last_report CONNECTION
last_report() { awk -v number="$1" '$3 == number && $5 == "calls"' "$SCRATCH/load.out" | tail -n 1; }

# goes_on SECONDS CONNECTION PATTERN: waits until there are such reports
goes_on() {
  mark
  if ! eventually "$1" reported "$2" "$3"; then
    grep -v ' calls ' "$SCRATCH/load.out" || true
    fail "connection $2 has no calls over '$3' within $1 s: $(last_report "$2")"
  fi
  log "connection $2: $(last_report "$2")"
}

# is_lost CONNECTION: succeeds if a report since the mark says that there is no connection
is_lost() {
  tail -n +$((MARK + 1)) "$SCRATCH/load.out" | awk -v number="$1" '$3 == number && $6 == "not" { found = 1 } END { exit !found }'
}

# load_finished: ends the client, none of whose calls has failed
load_finished() {
  kill -INT "${PID[load]}"
  finish load 70
  log "$(last_words load)"
}

# rail_removed DEVICE: removes a device. With these drivers that takes until no process has it open.
rail_removed() {
  local removal
  log "removing $1"
  rdma link delete "$1" &
  removal=$!
  eventually 60 ended_process "$removal" || fail "$1 cannot be removed, a process still uses it"
  wait "$removal" || fail "$1 could not be removed"
}
