# number KEY: of the JSON in try.out
number() { sed -n "s/^ *\"$1\": \([0-9.]*\),*\$/\1/p" "$SCRATCH/try.out" | head -n 1; }

# facts FOLDER: names, types, modes, link texts, and of files sizes and times
facts() { (cd "$1" && find . -mindepth 1 \( -type f -printf '%p f %m %s %T@\n' -o -printf '%p %y %m %l\n' \) | sort); }

# same_facts FOLDER FOLDER
same_facts() {
  facts "$1" >"$SCRATCH/facts.1"
  facts "$2" >"$SCRATCH/facts.2"
  diff "$SCRATCH/facts.1" "$SCRATCH/facts.2"
}

# nfscp_knfsd SCHEME: files of many sizes and a tree go by nfscp to Linux's server and back, and are compared at each step.
# $COUNTERS is what the last report said when a large file came from the server.
nfscp_knfsd() {
  local url=$1://$ADDR:20049/srv/nfs files=$SCRATCH/files tree=$SCRATCH/tree size
  mkdir "$files" "$SCRATCH/back"
  for size in 0 1 4095 4096 65537 1048577 $((64 << 20)); do head -c "$size" /dev/urandom >"$files/$size"; done

  log "files, there and back"
  try 60 "$BIN/nfscp" --json "$files"/* "$url/"
  within_bounds
  diff -r "$files" /srv/nfs || fail "what the server has differs from what was copied to it"
  try 60 "$BIN/nfscp" --json "$url"/{0,1,4095,4096,65537,1048577,$((64 << 20))} "$SCRATCH/back/"
  within_bounds
  diff -r "$files" "$SCRATCH/back" || fail "what came back differs from what was copied to the server"
  [ "$(number most_under_way)" -ge 8 ] || fail "$(number most_under_way) READs at a time, of $(number credits) credits"
  [ "$(number returned_written)" -ge $((64 << 20)) ] || fail "the data did not come by RDMA Write"
  COUNTERS=$(cat "$SCRATCH/try.out")
  rm -r /srv/nfs/*

  log "a tree, there and back"
  make_tree "$tree"
  ln -s '../4096' "$tree/a/link"
  ln -s 'nothing there' "$tree/dangling"
  chmod 4751 "$tree/1"
  chmod 555 "$tree/empty"
  mkdir "$tree/many"
  (cd "$tree/many" && seq -f 'entry number %05.0f of a long listing' 600 | xargs -d '\n' touch -d '2001-02-03 04:05:06.789')
  try 60 "$BIN/nfscp" --json -rp "$tree" "$url"
  within_bounds
  [ "$(digest /srv/nfs/tree)" = "$(digest "$tree")" ] || fail "the tree that the server has differs"
  same_facts "$tree" /srv/nfs/tree || fail "names, modes or times of the tree that the server has differ"
  try 60 "$BIN/nfscp" --json -rp "$url/tree" "$SCRATCH/back-tree"
  within_bounds
  [ "$(digest "$SCRATCH/back-tree")" = "$(digest "$tree")" ] || fail "the tree that came back differs"
  same_facts "$tree" "$SCRATCH/back-tree" || fail "names, modes or times of the tree that came back differ"

  log "what the server refuses"
  refuse 10 'NFS3ERR_ACCES' "$BIN/nfscp" --uid 1000 --gid 1000 "$files/1" "$url/tree/a/1"
  refuse 10 'no such file or directory' "$BIN/nfscp" "$url/absent" "$SCRATCH/back/"
  refuse 10 'MNT3ERR' "$BIN/nfscp" "${url%/srv/nfs}/elsewhere/x" "$SCRATCH/back/"
}

# What every report must say.
within_bounds() {
  [ "$(number exposed)" = 0 ] || fail "$(number exposed) regions are exposed in the end"
  [ "$(number failed)" = 0 ] || fail "$(number failed) files were not copied"
  # One: that it has no version 2, which is asked for first.
  [ "$(number errors_received)" -le 1 ] || fail "the server reported $(number errors_received) RDMA_ERRORs"
  [ "$(number calls)" = "$(number replies)" ] || fail "$(number calls) calls, $(number replies) replies"
}
