# about: built with verbs-bindings: the conformance suite
# fabric: rxe
# programs: rdmacheck@verbs-bindings
# timeout: 100
rdmacheck=$BIN/rdmacheck@verbs-bindings
for library in libibverbs.so.1 librdmacm.so.1; do
  ldd "$rdmacheck" | grep "$library" || fail "$rdmacheck is not linked with $library"
done
try 90 "$rdmacheck" "$ADDR" --known invalidate_of_another_connection
