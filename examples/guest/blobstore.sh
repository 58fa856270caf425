# about: a service on a device, as another project would test its own
# fabric: rxe siw
# programs: blobstore
# timeout: 120
start server "$BIN/blobstore" serve --root "$SCRATCH/store" --listen "rdma://$ADDR:20100"
eventually 10 listening 20100 || fail "the server does not listen: $(last_words server)"
head -c 1000003 /dev/urandom >sent
try 30 "$BIN/blobstore" put "rdma://$ADDR:20100" name sent
try 30 "$BIN/blobstore" get "rdma://$ADDR:20100" name received
cmp sent received || fail "what was fetched differs from what was stored"
