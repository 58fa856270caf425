# about: the providers' conformance suite by verbs, with the address sanitizer and its search for leaks
# fabric: rxe
# programs: rdmacheck@asan
# timeout: 150
rdmacheck=$BIN/rdmacheck@asan
# It is at work: code is instrumented, and what is lost in the end is looked for.
grep -qa asan.module_ctor "$rdmacheck" || fail "no code in rdmacheck is instrumented"
ASAN_OPTIONS=help=1 "$rdmacheck" --version >help 2>&1 || true
grep -A1 detect_leaks help | grep -q 'Current Value: true' || fail "the sanitizer does not look for leaks: $(head -n 1 help)"
try 140 "$rdmacheck" "$ADDR"
# Whatever it finds ends the program with an error, and is said.
if grep -E 'ERROR: (Address|Leak)Sanitizer' try.out; then fail "the sanitizer has found something"; fi
