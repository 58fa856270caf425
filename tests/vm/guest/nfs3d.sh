# Tests of nfs3d with Linux's NFS client.

# nfs3d_up NAME URL MOUNTPORT [OPTIONS]: serves $SCRATCH/export-NAME
nfs3d_up() {
  local name=$1 url=$2 port=$3
  shift 3
  mkdir -p "$SCRATCH/export-$name"
  start "nfs3d-$name" "$BIN/nfs3d" --root "$SCRATCH/export-$name" --state "$SCRATCH/state" --export /export \
    --listen "$url" --mount "tcp://$ADDR:$port" -v "$@"
  eventually 10 grep -q '^MOUNT on' "$SCRATCH/nfs3d-$name.out" || fail "nfs3d did not start: $(last_words "nfs3d-$name")"
}

# nfs3d_down NAME: ends the server, which must have released all memory
nfs3d_down() {
  kill "${PID[nfs3d-$1]}"
  finish "nfs3d-$1" 20
  grep -E '^(served|connections|memory):' "$SCRATCH/nfs3d-$1.out"
  grep -qx 'memory: 0 buffers still held, 0 regions still exposed, 0 bytes still registered' "$SCRATCH/nfs3d-$1.out" ||
    fail "nfs3d keeps memory: $(last_words "nfs3d-$1")"
}

# nfs3d_mount FOLDER PORT MOUNTPORT [OPTIONS]: mounts the export over RDMA
nfs3d_mount() {
  mkdir -p "$1"
  try "$(mount_limit)" mount -t nfs -o "vers=3,proto=rdma,port=$2,mountproto=tcp,mountvers=3,mountport=$3,nolock${4:+,$4}" "$ADDR:/export" "$1"
  grep -q 'xprt:.*rdma' /proc/self/mountstats || fail "$1 is mounted, but not over RDMA"
}

forget() { sync && echo 3 >/proc/sys/vm/drop_caches; }

# User of the commands that access the mount in the following tests, and what runs a command as this user.
OWNER=0 AS=()

# by UID TEST..: runs a test whose commands access the mount as a user
by() {
  local OWNER=$1 AS=(setpriv --reuid="$1" --regid="$1" --clear-groups)
  chmod 755 "$SCRATCH"
  log "as user $OWNER:"
  "${@:2}"
}

# copied_tree MOUNT EXPORT: copies a tree in, out and removes it
copied_tree() {
  local tree=$SCRATCH/tree copies=$SCRATCH/copies want
  log "a tree, in and out"
  make_tree "$tree"
  mkdir -p -m 1777 "$copies"
  # Large files have a separate test.
  rm "$tree/$((16 << 20))"
  want=$(digest "$tree")
  try 30 "${AS[@]}" cp -r "$tree" "$1/in"
  forget
  [ "$(digest "$2/in")" = "$want" ] || fail "the files at the server differ from those copied in"
  [ -z "$(find "$2/in" ! -uid "$OWNER")" ] || fail "the files at the server belong to another user"
  try 30 "${AS[@]}" cp -r "$1/in" "$copies/out"
  [ "$(digest "$copies/out")" = "$want" ] || fail "the files copied out differ from those copied in"
  try 30 "${AS[@]}" rm -r "$1/in"
  rm -r "$copies" "$tree"
  [ -z "$(ls -A "$2")" ] || fail "files removed through the mount are still on the server"
}

# large_files MOUNT EXPORT: 64 MiB with direct I/O, and through the page cache at odd offsets
large_files() {
  local mnt=$1 export=$2 size=$((64 << 20))
  log "64 MiB, direct"
  # Random blocks of an odd length, so that misplaced data is detected.
  head -c 1000003 /dev/urandom >block
  for _ in {1..68}; do cat block; done >large
  truncate -s "$size" large
  try 60 "${AS[@]}" dd if=large of="$mnt/direct" bs=1M oflag=direct
  cmp large "$export/direct" || fail "direct writes differ at the server"
  "${AS[@]}" timeout 60 dd if="$mnt/direct" bs=1M iflag=direct >back || fail "direct reads failed"
  cmp large back || fail "direct reads returned other data"
  rm back

  log "64 MiB through the page cache, at odd offsets and sizes"
  try 60 "${AS[@]}" dd if=large of="$mnt/direct" bs=1000003 iflag=fullblock conv=notrunc,fsync
  cp large odd
  local offset count
  for offset in 1 4095 65537 1048575 33333333 67108863; do
    count=$((offset % 100003 + 1))
    dd if=/dev/urandom of=piece bs="$count" count=1 status=none
    dd if=piece of=odd bs=64k oflag=seek_bytes seek="$offset" conv=notrunc status=none
    "${AS[@]}" dd if=piece of="$mnt/direct" bs=64k oflag=seek_bytes seek="$offset" conv=notrunc status=none
  done
  forget
  cmp odd "$export/direct" || fail "cached writes differ at the server"
  for offset in 0 3 4097 99999 12345678; do
    count=$((offset / 3 + 70001))
    "${AS[@]}" cmp -i "$offset" -n "$count" odd "$mnt/direct" || fail "reading $count bytes at $offset returned other data"
  done
  "${AS[@]}" cmp odd "$mnt/direct" || fail "cached reads returned other data"
  "${AS[@]}" rm "$mnt/direct"
  rm odd large piece block
}

# verified_mix MOUNT: fio writes at random offsets with checksums in each block, and reads back
verified_mix() {
  log "fio, verified"
  local common=(--directory="$1" --ioengine=psync --group_reporting --minimal --verify=crc32c --verify_fatal=1 --verify_state_save=0 --fallocate=none)
  try 60 "${AS[@]}" fio --name=cached --rw=randrw --bsrange=512-70k --bs_unaligned=1 --size=2m --numjobs=2 --end_fsync=1 "${common[@]}" >/dev/null
  try 60 "${AS[@]}" fio --name=direct --rw=randwrite --direct=1 --bs=16k --size=2m --numjobs=2 "${common[@]}" >/dev/null
  "${AS[@]}" bash -c 'rm "$0"/cached.* "$0"/direct.*' "$1"
}

# many_files MOUNT EXPORT: creates and removes many small files through the mount; lists a directory of 10,000 entries
many_files() {
  local mnt=$1 export=$2 count=2000 quarter pids=()
  log "$count small files, by four processes at once"
  mkdir small
  "${AS[@]}" mkdir "$mnt/small"
  for quarter in 0 1 2 3; do
    seq -f "file %g, of $count" $((quarter + 1)) 4 "$count" >"small/$quarter"
    "${AS[@]}" split -l 1 -a 4 -d "small/$quarter" "$mnt/small/$quarter-" &
    pids+=($!)
  done
  for quarter in "${pids[@]}"; do wait "$quarter" || fail "one of four processes could not create its files"; done
  [ "$(ls "$export/small" | wc -l)" -eq "$count" ] || fail "not all files are on the server"
  cat small/? >written
  cat "$export"/small/?-* >there
  cmp written there || fail "the files at the server differ from those written"
  forget
  # Only a quarter of them, because emulation is slow.
  "${AS[@]}" timeout 90 bash -c 'cat "$0"/small/3-*' "$mnt" >back || fail "small files cannot be read"
  cmp small/3 back || fail "reading small files returned other data"
  try 90 "${AS[@]}" rm -r "$mnt/small"
  [ ! -e "$export/small" ] || fail "rm -r left files"
  rm -r small written there back

  log "a directory of 10000"
  mkdir "$export/many"
  (cd "$export/many" && seq -f 'an entry with a name of some length, number %g' 10000 | xargs -d '\n' touch)
  [ "$("${AS[@]}" ls -f "$mnt/many" | sort | uniq | wc -l)" -eq 10002 ] || fail "not all of 10000 entries are listed once"
  [ "$("${AS[@]}" ls -lU "$mnt/many" | grep -c '^-')" -eq 10000 ] || fail "not all of 10000 entries have attributes"
  rm -r "$export/many"
}

# semantics MOUNT EXPORT
semantics() {
  local mnt=$1 export=$2 name long
  log "names, links, modes, sizes"
  mkdir "$mnt/s" && cd "$mnt/s"
  echo one >a
  ln a b
  [ "$(stat -c %h-%i a)" = "2-$(stat -c %i b)" ] || fail "a hard link refers to another file"
  echo two >>b
  [ "$(cat a)" = "$(printf 'one\ntwo')" ] || fail "data written through one name is not read through the other"
  mv a c
  [ ! -e a ] && [ "$(cat c)" = "$(cat b)" ] || fail "rename"
  ln -s ../s/c link
  [ "$(readlink link)" = ../s/c ] && [ "$(cat link)" = "$(cat c)" ] || fail "symbolic link"
  ln -s /etc/passwd outside
  cmp outside /etc/passwd || fail "the client does not follow a link out of the export"
  long=$(printf 'n%.0s' {1..255})
  echo long >"$long"
  [ "$(cat "$export/s/$long")" = long ] || fail "a name of 255 bytes"
  if (: >"x$long") 2>/dev/null; then fail "a name of 256 bytes was accepted"; fi
  truncate -s 100000 c && truncate -s 3 c
  [ "$(cat c)" = one ] || fail "truncate"
  exec 3<>c
  mv c ../moved
  echo four >&3
  exec 3>&-
  [ "$(cat "$export/moved")" = four ] || fail "writing to an open file after a rename"
  exec 3<>../moved
  rm ../moved
  echo gone >&3
  [ "$(cat /proc/self/fd/3)" = gone ] || fail "reading an open file after its removal"
  exec 3>&-
  chmod 4751 b
  touch -d '2001-02-03 04:05:06.789' b
  [ "$(stat -c %a-%Y "$export/s/b")" = "4751-$(date -d '2001-02-03 04:05:06' +%s)" ] || fail "mode or time"
  chown 12:34 b
  [ "$(stat -c %u:%g "$export/s/b")" = 12:34 ] || fail "owner"
  mkfifo pipe
  mknod null c 1 3
  [ -p "$export/s/pipe" ] && [ -c "$export/s/null" ] || fail "special files"
  mkdir d && touch d/x
  if rmdir d 2>/dev/null; then fail "a directory that is not empty was removed"; fi
  mkdir e && mv d e && [ -e e/d/x ] || fail "renaming a directory"
  (set -o noclobber; echo exclusive >new)
  if (set -o noclobber; echo again >new) 2>/dev/null; then fail "exclusive creation of an existing file succeeded"; fi
  cd "$SCRATCH"
  rm -r "$mnt/s"

  log "permissions"
  mkdir -m 1777 "$mnt/p" && cd "$mnt/p"
  as() { setpriv --reuid="$1" --regid="$1" --groups "$2" bash -c "$3"; }
  as 1000 1000,50 'umask 077; echo secret >a; mkdir -m 700 d; echo x >d/x; echo g >g; chgrp 50 g; chmod 640 g'
  [ "$(stat -c %u:%g "$export/p/a")" = 1000:1000 ] || fail "a file does not belong to its creator"
  for name in 'cat a' 'echo x >a' 'cat d/x' 'ls d' 'rm -f a' 'mv a b' 'chmod 777 a' 'echo x >>g'; do
    if as 1001 50 "$name" 2>/dev/null >/dev/null; then fail "another user can: $name"; fi
  done
  [ "$(as 1001 50 'cat g')" = g ] || fail "a member of the group cannot read"
  if as 1002 51 'cat g' 2>/dev/null; then fail "a user outside of the group can read"; fi
  cd "$SCRATCH"
  rm -r "$mnt/p"
}

# several_at_once MOUNT EXPORT
several_at_once() {
  local mnt=$1 export=$2 nth
  log "six processes at once"
  "${AS[@]}" mkdir "$mnt/together"
  local pids=()
  for nth in {1..6}; do
    head -c $((nth * 500009)) /dev/urandom >"$SCRATCH/p$nth"
    "${AS[@]}" bash -ec '
      mnt=$0 nth=$1 source=$2
      mkdir "$mnt/together/$nth"
      for round in 1 2 3; do
        cp "$source" "$mnt/together/$nth/$round"
        echo "$nth $round" >>"$mnt/together/$nth/list"
        mv "$mnt/together/$nth/$round" "$mnt/together/$nth-$round"
        cmp "$source" "$mnt/together/$nth-$round"
      done
    ' "$mnt" "$nth" "$SCRATCH/p$nth" &
    pids+=($!)
  done
  for nth in "${pids[@]}"; do wait "$nth" || fail "one of several processes failed"; done
  forget
  for nth in {1..6}; do cmp "$SCRATCH/p$nth" "$export/together/$nth-3" || fail "process $nth's file differs"; done
  "${AS[@]}" rm -r "$mnt/together"
  rm "$SCRATCH"/p?
}

# nfs3d_case URL: runs all tests on a server at URL (without a port) as root, and tests a squashed root
nfs3d_case() {
  local mnt=$SCRATCH/mnt export=$SCRATCH/export-main
  nfs3d_up main "$1:20049" 20048 --no-root-squash
  nfs3d_mount "$mnt" 20049 20048
  copied_tree "$mnt" "$export"
  large_files "$mnt" "$export"
  verified_mix "$mnt"
  many_files "$mnt" "$export"
  semantics "$mnt" "$export"
  several_at_once "$mnt" "$export"

  log "the server is killed during a write and restarted"
  echo before >"$mnt/kept"
  exec 3<"$mnt/kept"
  head -c 8000000 /dev/urandom >large
  start writer dd if=large of="$mnt/large" bs=100003 iflag=fullblock conv=fsync
  eventually 10 test -s "$export/large"
  kill -9 "${PID[nfs3d-main]}"
  sleep 0.5
  # Close descriptor 3, which the server would otherwise hold as long as it runs.
  nfs3d_up main "$1:20049" 20048 --no-root-squash 3<&-
  finish writer 60
  cmp large "$export/large" || fail "the file written while the server was killed differs"
  echo after >"$mnt/kept"
  [ "$(cat "$mnt/kept" <&3)" = after ] || fail "reading a file that was open before the restart"
  exec 3<&-
  rm "$mnt/kept" "$mnt/large"
  try 20 umount "$mnt"
  nfs3d_down main

  log "root is squashed"
  nfs3d_up squash "$1:20050" 20047
  nfs3d_mount "$mnt" 20050 20047
  if (: >"$mnt/a") 2>/dev/null; then fail "the client's root can write where only root may"; fi
  chmod 1777 "$SCRATCH/export-squash"
  eventually 10 eval ": >'$mnt/a'" 2>/dev/null || fail "the client's root cannot write where everybody may"
  [ "$(stat -c %u:%g "$SCRATCH/export-squash/a")" = 65534:65534 ] || fail "the client's root is not nobody"
  try 20 umount "$mnt"
  nfs3d_down squash
}
