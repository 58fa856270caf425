# about: built with verbs-bindings: the conformance suite
# fabric: rxe siw
# programs: rdmacheck@verbs-bindings
# timeout: 100
rdmacheck=$BIN/rdmacheck@verbs-bindings
for library in libibverbs.so.1 librdmacm.so.1; do
  ldd "$rdmacheck" | grep "$library" || fail "$rdmacheck is not linked with $library"
done
known=()
# See verbs-conformance.
[ "$FABRIC" = rxe ] || known=(--known read_of_sink)
try 90 "$rdmacheck" "$ADDR" "${known[@]}"
