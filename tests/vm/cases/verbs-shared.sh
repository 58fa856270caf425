# about: the provider conformance suite with shared Receives and completion queues
# fabric: rxe siw
# programs: rdmacheck
# timeout: 120
known=()
# Linux's siw does not check the read permission when it responds to an RDMA Read.
[ "$FABRIC" = rxe ] || known=(--known read_of_sink)
# siw cannot share Receives safely, and serves each connection by itself.
try 110 "$BIN/rdmacheck" "$ADDR" --shared-receives 256 "${known[@]}"
