# about: fails with a reason of its own
# fabric: rxe
# timeout: 20
fail "the reason"
