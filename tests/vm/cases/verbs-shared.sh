# about: the provider conformance suite with shared Receives and completion queues
# fabric: rxe
# programs: rdmacheck
# timeout: 150
# Linux's rxe invalidates windows without regard to their connection or domain. siw cannot share Receives safely, so the option
# has no effect there.
try 140 "$BIN/rdmacheck" "$ADDR" --shared-receives 256 --known invalidate_of_another_connection
