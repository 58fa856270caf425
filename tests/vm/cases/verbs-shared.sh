# about: the provider conformance suite with shared Receives and completion queues
# fabric: rxe siw
# programs: rdmacheck
# timeout: 150
# Linux's rxe invalidates windows without regard to their connection or domain. Linux's siw does not check the read permission
# when it responds to an RDMA Read.
case $FABRIC in rxe) known=(--known invalidate_of_another_connection) ;; *) known=(--known read_of_sink) ;; esac
# siw cannot share Receives safely, and serves each connection by itself.
try 140 "$BIN/rdmacheck" "$ADDR" --shared-receives 256 "${known[@]}"
