# about: the provider conformance suite over verbs, with the address sanitizer and its leak detector
# fabric: rxe
# programs: rdmacheck@asan
# timeout: 150
rdmacheck=$BIN/rdmacheck@asan
# Check that the sanitizer is active: the code is instrumented, and leaks are searched at exit.
grep -qa asan.module_ctor "$rdmacheck" || fail "rdmacheck is not instrumented"
ASAN_OPTIONS=help=1 "$rdmacheck" --version >help 2>&1 || true
grep -A1 detect_leaks help | grep -q 'Current Value: true' || fail "the leak detector is off: $(head -n 1 help)"
try 140 "$rdmacheck" "$ADDR" --known invalidate_of_another_connection
# A finding ends the program with an error and a message.
if grep -E 'ERROR: (Address|Leak)Sanitizer' try.out; then fail "the sanitizer reported an error"; fi
