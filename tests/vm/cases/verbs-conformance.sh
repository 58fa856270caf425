# about: built with verbs: linked with the libraries, and the conformance suite with IPv4 and IPv6
# fabric: rxe siw
# programs: rdmacheck
# timeout: 200
for library in libibverbs.so.1 librdmacm.so.1; do
  ldd "$BIN/rdmacheck" | grep "$library" || fail "rdmacheck is not linked with $library"
done
# Linux's rxe invalidates windows without regard to their connection or domain. Linux's siw does not check the read permission
# when it responds to an RDMA Read.
case $FABRIC in rxe) known=(--known invalidate_of_another_connection) ;; *) known=(--known read_of_sink) ;; esac
try 190 "$BIN/rdmacheck" "$ADDR" "$ADDR6" "${known[@]}"
