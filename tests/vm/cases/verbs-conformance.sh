# about: the providers' conformance suite by verbs, over IPv4 and IPv6
# fabric: rxe siw
# programs: rdmacheck
# timeout: 150
known=()
# Linux's siw does not look at the right to read when it answers an RDMA Read. That an RDMA Read's data arrive changed when
# much goes both ways has been seen on it: README.md, "Open".
[ "$FABRIC" = rxe ] || known=(--known read_of_sink --known both_directions_at_once)
try 140 "$BIN/rdmacheck" "$ADDR" "$ADDR6" "${known[@]}"
