# about: the provider conformance suite over verbs, with IPv4 and IPv6
# fabric: rxe siw
# programs: rdmacheck
# timeout: 150
known=()
# Linux's siw does not check the read permission when it responds to an RDMA Read.
[ "$FABRIC" = rxe ] || known=(--known read_of_sink)
try 140 "$BIN/rdmacheck" "$ADDR" "$ADDR6" "${known[@]}"
