# about: a pool shares calls and bytes among two RDMA devices; one is removed under load, no idempotent call fails, and it is used again
# fabric: rxe siw
# alternate: yes
# programs: blobstore
# timeout: 400
. /suite/guest/load.sh
other_device_made
start server "$BIN/blobstore" -v serve --root "$SCRATCH/store" --listen "rdma://$ADDR:20100" --listen "rdma://$OTHER_ADDR:20100"
eventually 10 grep -q "rdma://$OTHER_ADDR:20100" "$SCRATCH/server.out" || fail "blobstore does not listen: $(last_words server)"
pool=("rdma://$ADDR:20100?local=$ADDR" --path "rdma://$OTHER_ADDR:20100?local=$OTHER_ADDR")

# are_close WHAT ONE OTHER: succeeds if the numbers differ by at most 20 %
are_close() {
  log "$1: $2 and $3"
  awk -v a="$2" -v b="$3" 'BEGIN { exit !(a > 0 && b > 0 && a <= 1.2 * b && b <= 1.2 * a) }'
}
# total CONNECTION: prints its calls and its bytes
total() {
  awk -v number="$1:" 'BEGIN { unit["B"] = 1; unit["KiB"] = 1024; unit["MiB"] = 1024 ^ 2; unit["GiB"] = 1024 ^ 3 }
    $1 == "connection" && $2 == number { printf "%d %.0f\n", $3, $5 * unit[$6] }' try.out
}
# packets DEVICE: prints how many packets the device has sent. Soft iWARP does not count them.
packets() { cat "/sys/class/infiniband/$1/ports/1/hw_counters/sent_pkts"; }

calls=0 bytes=0 other_calls=0 other_bytes=0 before=(0 0)
[ "$FABRIC" = siw ] || before=("$(packets "$DEVICE")" "$(packets "${FABRIC}1")")
# round: puts load on both rails; succeeds if their calls, bytes and packets of all rounds are close
round() {
  local more_calls more_bytes
  try 60 "$BIN/blobstore" load "${pool[@]}" --seconds 10
  read -r more_calls more_bytes <<<"$(total 1)"
  calls=$((calls + more_calls)) bytes=$((bytes + more_bytes))
  read -r more_calls more_bytes <<<"$(total 2)"
  other_calls=$((other_calls + more_calls)) other_bytes=$((other_bytes + more_bytes))
  are_close calls "$calls" "$other_calls" && are_close bytes "$bytes" "$other_bytes" || return 1
  [ "$FABRIC" = siw ] ||
    are_close "packets of the devices" $(($(packets "$DEVICE") - before[0])) $(($(packets "${FABRIC}1") - before[1]))
}
rounds() { for _ in {1..8}; do ! round || return 0; done; return 1; }

log "two rails"
# The pool gives fewer calls to a slower rail, and on one processor each rail is the slower one at times. So not every round is even.
rounds || fail "in the sums of eight rounds, the two rails differed by more than 20 %"

log "one of them is removed under load"
load_started "${pool[@]}"
goes_on 60 1 "RDMA from $ADDR:"
goes_on 60 2 "RDMA from $OTHER_ADDR:"
mark
rail_removed "${FABRIC}1"
goes_on 60 1 "RDMA from $ADDR:"
is_lost 2 || fail "connection 2 was not lost, the case shows nothing: $(last_report 2)"

log "and is back"
rdma link add "${FABRIC}1" type "$FABRIC" netdev dm1
goes_on 120 2 "RDMA from $OTHER_ADDR:"
goes_on 60 1 "RDMA from $ADDR:"

log "its link goes down under load"
mark
ip link set dm1 down
# Linux 7 delivers its own packets to an address whose interface is down.
[ "$FABRIC" = rxe ] || ip address delete "$OTHER_ADDR/24" dev dm1
eventually 60 is_lost 2 || fail "connection 2 is still open: $(last_report 2)"
goes_on 60 1 "RDMA from $ADDR:"
ip link set dm1 up
ip address replace "$OTHER_ADDR/24" dev dm1
# After that, no program can open a new connection over rxe until the device is added again (README.md).
[ "$FABRIC" = rxe ] || goes_on 120 2 "RDMA from $OTHER_ADDR:"
load_finished
