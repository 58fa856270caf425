# about: the buffers of a server in huge pages: those that are reserved, and transparent ones
# fabric: rxe siw
# alternate: yes
# programs: blobstore
# timeout: 150
export RUST_LOG=rpcrdma=info
mkdir -p "$SCRATCH/store"
head -c 12000007 /dev/urandom >source

# kibibytes KEY FILE: a number from a file of the server's process
kibibytes() { awk -v key="$1:" '$1 == key { print $2 }' "/proc/${PID[server]}/$2"; }

# transfer NAME PAGES: serves with this many reserved pages. $RESERVED and $TRANSPARENT are the server's huge pages in KiB.
transfer() {
  echo "$2" >/proc/sys/vm/nr_hugepages
  [ "$(cat /proc/sys/vm/nr_hugepages)" = "$2" ] || fail "the guest cannot reserve $2 huge pages"
  start server "$BIN/blobstore" serve --root "$SCRATCH/store" --listen "rdma://$ADDR:20100" --huge-pages
  eventually 10 grep -q "$ADDR:20100" "$SCRATCH/server.out" || fail "$1: blobstore does not listen: $(last_words server)"
  try 30 "$BIN/blobstore" put "rdma://$ADDR:20100" "$1" source --range 4MiB
  try 30 "$BIN/blobstore" get "rdma://$ADDR:20100" "$1" "$1" --range 4MiB
  cmp source "$1" || fail "$1: the data differs"
  RESERVED=$(kibibytes HugetlbPages status) TRANSPARENT=$(kibibytes AnonHugePages smaps_rollup)
  log "$1: $RESERVED KiB in reserved huge pages, $TRANSPARENT KiB in transparent ones"
  stop server
  # They are returned with the process.
  [ "$(awk '/^HugePages_Free/ { print $2 }' /proc/meminfo)" = "$2" ] || fail "$1: the server has kept reserved huge pages"
}

transfer reserved 64
[ "$RESERVED" -ge 4096 ] || fail "the server uses no reserved huge pages: $(grep huge "$SCRATCH/server.out")"
! grep 'no reserved huge pages' "$SCRATCH/server.out" || fail "the server did not find the reserved huge pages"

# Not enough for a buffer.
transfer few 1
[ "$RESERVED" -eq 0 ] || fail "a buffer of 4 MiB has found a single page"
grep -q 'no reserved huge pages' "$SCRATCH/server.out" || fail "the server does not say that there are too few huge pages"

transfer none 0
[ "$RESERVED" -eq 0 ] || fail "there are reserved huge pages"
grep -q 'no reserved huge pages' "$SCRATCH/server.out" || fail "the server does not say that there are no huge pages"
if ! grep -q '\[never\]' /sys/kernel/mm/transparent_hugepage/enabled; then
  [ "$TRANSPARENT" -ge 2048 ] || fail "the server has no transparent huge pages either"
fi
