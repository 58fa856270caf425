# about: the providers' conformance suite by verbs, over IPv4 and IPv6
# fabric: rxe siw
# programs: rdmacheck
# timeout: 150
known=()
# Linux's siw does not look at the right to read when it answers an RDMA Read.
[ "$FABRIC" = rxe ] || known=(--known read_of_sink)
try 140 "$BIN/rdmacheck" "$ADDR" "$ADDR6" "${known[@]}"
