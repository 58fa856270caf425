# about: the leftovers of the previous case are gone
# fabric: rxe
# timeout: 20
! mountpoint -q /mnt/left || fail "the mount still exists"
! grep -qs '^sleep' /proc/[0-9]*/cmdline || fail "the process still runs"
[ -z "$(ls -A "$SCRATCH")" ] || fail "files still exist"
