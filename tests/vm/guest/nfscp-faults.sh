# transfer FROM TO [OPTIONS]: runs nfscp in the background, with small calls so that it can be interrupted
transfer() {
  local from=$1 to=$2
  shift 2
  start nfscp "$BIN/nfscp" --json -v -j 8 --chunk-size 32KiB --timeout 10 "${@:---retry=40}" "$from" "$to"
}

# under_way FILE: waits until a part of the file has arrived; fails if nfscp has finished
under_way() {
  local end=$((SECONDS + 20))
  until [ "$(stat -c %b "$1" 2>/dev/null || echo 0)" -gt 4000 ]; do
    [ $SECONDS -lt $end ] && ! ended_process "${PID[nfscp]}" || fail "no data arrives: $(last_words nfscp)"
  done
  ended_process "${PID[nfscp]}" && fail "the transfer finished before it could be interrupted"
  true
}

# writing TO, reading TO: starts a transfer to or from the server, and waits until it is in progress
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

# interrupted SECONDS: the transfer must end successfully within that time, on another connection, with nothing exposed
interrupted() {
  finish nfscp "$1"
  grep -qw 'reconnected' "$SCRATCH/nfscp.out" || fail "the connection was not lost, the test shows nothing"
  grep -q '"exposed": 0' "$SCRATCH/nfscp.out" || fail "regions are still exposed at the end"
  grep -q '"failed": 0' "$SCRATCH/nfscp.out" || fail "$(last_words nfscp)"
  cut -c 1-200 "$SCRATCH/nfscp.out"
}

# connections: the number of connections between the kernel's server and its clients
connections() { rdma resource show qp | grep -c 'state RTS' || true; }
at_most() { [ "$(connections)" -le "$1" ]; } # at_most CONNECTIONS

link_down() {
  log "the link goes down for 3 seconds"
  writing link
  without_link 3
  interrupted 60
  cmp "$source" /srv/nfs/link
}

# nfscp_faults SCHEME: transfers to and from Linux's server with faults
nfscp_faults() {
  local url=$1://$ADDR:20049/srv/nfs source=$SCRATCH/source before
  long_file "$source"
  before=$(connections)

  # Not over rxe, where a link failure blocks Linux's server for ever, and not with Linux 7, where it interrupts nothing over siw:
  # see README.md.
  if [ "$FABRIC" = rxe ] || is_linux_7; then cp "$source" /srv/nfs/link; else link_down; fi

  log "the server is stopped and restarted during a write"
  writing restarted
  rpc.nfsd 0
  sleep 1
  knfsd_start
  interrupted 60
  cmp "$source" /srv/nfs/restarted

  log "the server is stopped and restarted during a read"
  mkdir back
  reading x
  rpc.nfsd 0
  sleep 1
  knfsd_start
  interrupted 60
  cmp "$source" back/x

  log "clients are killed with calls in flight"
  local times=3
  # Over siw, Linux's server may wait for ever for a disconnected client, mostly one that wrote: see README.md.
  [ "$FABRIC" = rxe ] || times=1
  for ((; times > 0; times--)); do
    case $FABRIC in rxe) writing killed ;; siw) reading killed ;; esac
    kill -9 "${PID[nfscp]}"
    wait "${PID[nfscp]}" || true
  done
  eventually 20 at_most "$before" || fail "the server keeps connections of killed clients: $(connections), $before before"
  try 30 "$BIN/nfscp" "$url/link" back/y
  cmp "$source" back/y

  log "the server does not come back: an error in time"
  rpc.nfsd 0
  refuse 20 'cannot use|connection|refused' "$BIN/nfscp" --retry 3 "$url/link" back/z
  [ ! -e back/z ] || fail "an incomplete file exists"
}
