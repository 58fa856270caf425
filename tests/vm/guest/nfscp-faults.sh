# transfer FROM TO [OPTIONS]: nfscp in the background, in calls so small that there is time for something to happen
transfer() {
  local from=$1 to=$2
  shift 2
  start nfscp "$BIN/nfscp" --json -v -j 8 --chunk-size 32KiB --timeout 10 "${@:---retry=40}" "$from" "$to"
}

# under_way FILE: until a part of it has arrived, and not all of it, unless nfscp is through with it
under_way() {
  local end=$((SECONDS + 20))
  until [ "$(stat -c %b "$1" 2>/dev/null || echo 0)" -gt 4000 ]; do
    [ $SECONDS -lt $end ] && ! ended_process "${PID[nfscp]}" || fail "nothing arrives: $(last_words nfscp)"
  done
  ended_process "${PID[nfscp]}" && fail "the transfer was over before anything could happen to it"
  true
}

# writing TO, reading TO: a transfer to or from the server, once it is under way
writing() {
  rm -f "/srv/nfs/$1"
  transfer "$source" "$url/$1"
  under_way "/srv/nfs/$1"
}
reading() {
  rm -f back/.nfscp-*
  transfer "$url/link" "$SCRATCH/back/$1"
  until compgen -G "$SCRATCH/back/.nfscp-*" >/dev/null; do :; done
  under_way "$(compgen -G "$SCRATCH/back/.nfscp-*")"
}

# interrupted SECONDS: it must have ended well by then, on another connection, with nothing exposed
interrupted() {
  finish nfscp "$1"
  grep -q 'connected anew' "$SCRATCH/nfscp.out" || fail "the connection was not lost: this shows nothing"
  grep -q '"exposed": 0' "$SCRATCH/nfscp.out" || fail "regions are exposed in the end"
  grep -q '"failed": 0' "$SCRATCH/nfscp.out" || fail "$(last_words nfscp)"
  cut -c 1-200 "$SCRATCH/nfscp.out"
}

# connections: of the kernel's server with clients
connections() { rdma resource show qp | grep -c 'state RTS' || true; }
at_most() { [ "$(connections)" -le "$1" ]; } # at_most CONNECTIONS

link_down() {
  log "the link goes down for 3 seconds"
  writing link
  without_link 3
  interrupted 60
  cmp "$source" /srv/nfs/link
}

# nfscp_faults SCHEME: transfers to and from Linux's server that something happens to
nfscp_faults() {
  local url=$1://$ADDR:20049/srv/nfs source=$SCRATCH/source before
  long_file "$source"
  before=$(connections)

  # Not over rxe, where it leaves Linux's server in a state that it does not come out of: README.md.
  case $FABRIC in rxe) cp "$source" /srv/nfs/link ;; siw) link_down ;; esac

  log "the server is stopped and started again, while it is written to"
  writing restarted
  rpc.nfsd 0
  sleep 1
  knfsd_start
  interrupted 60
  cmp "$source" /srv/nfs/restarted

  log "the same, while it is read from"
  mkdir back
  reading x
  rpc.nfsd 0
  sleep 1
  knfsd_start
  interrupted 60
  cmp "$source" back/x

  log "clients are killed with calls in flight"
  local times=3
  # Over siw, Linux's server may wait for ever for a client that is gone, mostly one that wrote: README.md.
  [ "$FABRIC" = rxe ] || times=1
  for ((; times > 0; times--)); do
    case $FABRIC in rxe) writing killed ;; siw) reading killed ;; esac
    kill -9 "${PID[nfscp]}"
    wait "${PID[nfscp]}" || true
  done
  eventually 20 at_most "$before" || fail "the server keeps connections of clients that are gone: $(connections), $before before"
  try 30 "$BIN/nfscp" "$url/link" back/y
  cmp "$source" back/y

  log "the server is gone for good: an error, in time"
  rpc.nfsd 0
  refuse 20 'cannot use|connection|refused' "$BIN/nfscp" --retry 3 "$url/link" back/z
  [ ! -e back/z ] || fail "a file that did not arrive is there"
}
