# about: does not end, not even on SIGTERM
# fabric: rxe
# timeout: 2
trap '' TERM
while :; do sleep 1000; done
