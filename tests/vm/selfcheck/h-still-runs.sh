# about: the remaining cases still run
# fabric: rxe
# timeout: 20
[ -d /sys/class/infiniband/rxe0 ] || fail "no device"
