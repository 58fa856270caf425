# about: fails with its own reason
# fabric: rxe
# timeout: 20
fail "the reason"
