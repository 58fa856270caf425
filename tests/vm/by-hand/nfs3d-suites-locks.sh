# about: cthon04's lock tests by two of Linux's NFS 3 clients on nfs3d
# fabric: siw
# programs: nfs3d suites
# timeout: 900
. /suite/guest/nfs3d-locks.sh
. /suite/guest/suites.sh
suites_up
clients_up
results=/out/$CASE.results
rm -f "$results"
log "the first client"
told first "$results" timeout 200 "$SUITES/cthon04/lock/tlocklfs" "$A"
log "the second client"
told second "$results" timeout 200 "${ON_OTHER[@]}" "$SUITES/cthon04/lock/tlocklfs" "$SCRATCH/b"
log "both at once"
mkdir "$A/one" "$A/two"
start first told first-of-both "$results" timeout 200 "$SUITES/cthon04/lock/tlocklfs" "$A/one"
start second told second-of-both "$results" timeout 200 "${ON_OTHER[@]}" "$SUITES/cthon04/lock/tlocklfs" "$SCRATCH/b/two"
finish first 220
finish second 220
if grep '^not ok' "$results"; then fail "cthon04's lock tests fail"; fi
rm -r "$A/one" "$A/two"
clients_down
