# number KEY: prints a value of the JSON in try.out
number() { sed -n "s/^ *\"$1\": \([0-9.]*\),*\$/\1/p" "$SCRATCH/try.out" | head -n 1; }

# facts FOLDER: prints names, types, modes, link targets, and the sizes and times of files
facts() { (cd "$1" && find . -mindepth 1 \( -type f -printf '%p f %m %s %T@\n' -o -printf '%p %y %m %l\n' \) | sort); }

# same_facts FOLDER FOLDER
same_facts() {
  facts "$1" >"$SCRATCH/facts.1"
  facts "$2" >"$SCRATCH/facts.2"
  diff "$SCRATCH/facts.1" "$SCRATCH/facts.2"
}

# nfscp_knfsd SCHEME: copies files of many sizes and a tree with nfscp to Linux's server and back, and compares at each step.
# $COUNTERS has the last report about a large file from the server.
nfscp_knfsd() {
  local url=$1://$ADDR:20049/srv/nfs files=$SCRATCH/files tree=$SCRATCH/tree size
  mkdir "$files" "$SCRATCH/back"
  for size in 0 1 4095 4096 65537 1048577 $((64 << 20)); do head -c "$size" /dev/urandom >"$files/$size"; done

  log "files in both directions"
  try 60 "$BIN/nfscp" --json "$files"/* "$url/"
  within_bounds
  diff -r "$files" /srv/nfs || fail "the files at the server differ from those copied to it"
  try 60 "$BIN/nfscp" --json "$url"/{0,1,4095,4096,65537,1048577,$((64 << 20))} "$SCRATCH/back/"
  within_bounds
  diff -r "$files" "$SCRATCH/back" || fail "the files copied back differ from those copied to the server"
  [ "$(number most_in_flight)" -ge 8 ] || fail "$(number most_in_flight) READs at a time, of $(number credits) credits"
  [ "$(number written_by_peer_bytes)" -ge $((64 << 20)) ] || fail "the data was not transferred by RDMA Write"
  COUNTERS=$(cat "$SCRATCH/try.out")
  rm -r /srv/nfs/*

  log "a tree in both directions"
  make_tree "$tree"
  ln -s '../4096' "$tree/a/link"
  ln -s 'nothing there' "$tree/dangling"
  chmod 4751 "$tree/1"
  chmod 555 "$tree/empty"
  mkdir "$tree/many"
  (cd "$tree/many" && seq -f 'entry number %05.0f of a long listing' 600 | xargs -d '\n' touch -d '2001-02-03 04:05:06.789')
  try 60 "$BIN/nfscp" --json -rp "$tree" "$url"
  within_bounds
  [ "$(digest /srv/nfs/tree)" = "$(digest "$tree")" ] || fail "the tree at the server differs"
  same_facts "$tree" /srv/nfs/tree || fail "names, modes or times of the tree at the server differ"
  try 60 "$BIN/nfscp" --json -rp "$url/tree" "$SCRATCH/back-tree"
  within_bounds
  [ "$(digest "$SCRATCH/back-tree")" = "$(digest "$tree")" ] || fail "the tree copied back differs"
  same_facts "$tree" "$SCRATCH/back-tree" || fail "names, modes or times of the tree copied back differ"

  log "requests that the server refuses"
  refuse 10 'NFS3ERR_ACCES' "$BIN/nfscp" --uid 1000 --gid 1000 "$files/1" "$url/tree/a/1"
  refuse 10 'no such file or directory' "$BIN/nfscp" "$url/absent" "$SCRATCH/back/"
  refuse 10 'MNT3ERR' "$BIN/nfscp" "${url%/srv/nfs}/elsewhere/x" "$SCRATCH/back/"
}

# Checks that apply to every report.
within_bounds() {
  [ "$(number exposed)" = 0 ] || fail "$(number exposed) regions are still exposed at the end"
  [ "$(number failed)" = 0 ] || fail "$(number failed) files were not copied"
  # One error is allowed: the server does not support version 2, which the client tries first.
  [ "$(number errors_received)" -le 1 ] || fail "the server reported $(number errors_received) RDMA_ERRORs"
  # With Kerberos, the client does not wait for the reply when it destroys its security context at the end.
  [ $(($(number calls) - $(number replies))) -le "$([ -n "${KRB5CCNAME:-}" ] && echo 1 || echo 0)" ] || fail "$(number calls) calls, $(number replies) replies"
}

# placed_directly SEC KEY: data is placed directly with krb5, and nothing with krb5i and krb5p (RFC 8166 section 8.2.2.3)
placed_directly() {
  local messages
  messages=$(number "$2")
  if [ "$1" = krb5 ]; then [ "$messages" -ge 64 ]; else [ "$messages" -eq 0 ]; fi || fail "$messages $2 with $1"
}

# nfscp_knfsd_krb5 URL: copies files with each flavor of Kerberos to Linux's server and back
nfscp_knfsd_krb5() {
  local url=$1/srv/nfs files=$SCRATCH/files size sec
  mkdir "$files"
  for size in 0 1 4095 4096 65537 1048577 $((64 << 20)); do head -c "$size" /dev/urandom >"$files/$size"; done

  log "refused without a ticket, and with AUTH_SYS"
  export KRB5CCNAME=FILE:/tmp/krb5cc_test
  kdestroy -q 2>/dev/null || true
  refuse 30 'run kinit' "$BIN/nfscp" --sec krb5p "$files/1" "$url/"
  refuse 30 'krb5:krb5i:krb5p, not sys' "$BIN/nfscp" --sec sys "$files/1" "$url/"
  kinit user <<<user >/dev/null || fail "no ticket"

  for sec in krb5 krb5i krb5p; do
    log "sec=$sec"
    try 120 "$BIN/nfscp" --sec $sec --json "$files"/* "$url/"
    within_bounds
    placed_directly $sec chunked_calls
    diff -r "$files" /srv/nfs || fail "the files at the server differ from those copied to it"
    [ "$(stat -c %u /srv/nfs/1)" = 1000 ] || fail "the files belong to $(stat -c %u /srv/nfs/1)"
    mkdir "$SCRATCH/back"
    try 120 "$BIN/nfscp" --sec $sec --json "$url"/{0,1,4095,4096,65537,1048577,$((64 << 20))} "$SCRATCH/back/"
    within_bounds
    diff -r "$files" "$SCRATCH/back" || fail "the files copied back differ from those copied to the server"
    placed_directly $sec chunked_replies
    rm -r /srv/nfs/* "$SCRATCH/back"
  done

  log "without --sec: the first flavor of the server"
  try 60 "$BIN/nfscp" "$files/4095" "$url/"
  cmp "$files/4095" /srv/nfs/4095 || fail "the file differs"
}
