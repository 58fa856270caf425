# about: what the case before left behind is gone
# fabric: rxe
# timeout: 20
! mountpoint -q /mnt/left || fail "the mount is still there"
! grep -qs '^sleep' /proc/[0-9]*/cmdline || fail "the process is still there"
[ -z "$(ls -A "$SCRATCH")" ] || fail "files are still there"
