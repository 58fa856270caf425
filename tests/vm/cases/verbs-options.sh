# about: traffic class, ACK timeout, numbers of retries and relaxed ordering reach the device, and the path MTU follows the interface
# fabric: rxe siw
# alternate: yes
# programs: blobstore
# timeout: 150
export RUST_LOG=rpcrdma=info,rpcrdma_verbs=debug
head -c 3000001 /dev/urandom >source

# served PORT OPTIONS: starts a server
served() {
  mkdir "$SCRATCH/store$1"
  start "server$1" "$BIN/blobstore" serve --root "$SCRATCH/store$1" --listen "rdma://$ADDR:$1$2"
  eventually 10 grep -q "$ADDR:$1" "$SCRATCH/server$1.out" || fail "blobstore does not listen: $(last_words "server$1")"
}

# exchange PORT OPTIONS: copies a file to the server and back
exchange() {
  try 30 "$BIN/blobstore" put "rdma://$ADDR:$1$2" "file$1" source
  sed 's/\x1b\[[0-9;]*m//g' try.out >put.out
  try 30 "$BIN/blobstore" get "rdma://$ADDR:$1$2" "file$1" "copy$1"
  cmp source "copy$1" || fail "the data differs"
}

# path NAME FIELD: a number of the last path that a program has logged
path() { sed 's/\x1b\[[0-9;]*m//g' "$SCRATCH/$1.out" | sed -n "s/.*connected .*[{ ]$2: \([0-9]*\)[, ].*/\1/p" | tail -n 1; }

# is NAME FIELD NUMBER
is() { [ "$(path "$1" "$2")" = "$3" ] || fail "$1: $2 is $(path "$1" "$2"), expected $3: $(grep connected "$SCRATCH/$1.out" | tail -n 1)"; }

log "defaults"
served 20100 ''
exchange 20100 ''
if [ "$FABRIC" = rxe ]; then
  is put traffic_class 0
  is put retries 7
  is put rnr_retries 0
  is server20100 rnr_retries 0
fi
default=$(path put ack_timeout)

log "all options"
served 20101 '?tclass=40&ack_timeout=17&rnr_retries=3&relaxed=on&retries=1'
exchange 20101 '?tclass=104&ack_timeout=18&retries=5&rnr_retries=2&relaxed=on'
grep -h 'relaxed ordering' put.out "$SCRATCH/server20101.out" || log "the device takes the flag for relaxed ordering"
if [ "$FABRIC" = rxe ]; then
  [ "$default" != 18 ] || fail "the ACK timeout is that of the system"
  # The client decides, except for the ACK timeout of the server's device and the retries of the client's Sends.
  is put traffic_class 104
  is put ack_timeout 18
  is put retries 5
  is put rnr_retries 3
  is server20101 traffic_class 104
  is server20101 ack_timeout 17
  is server20101 retries 5
  is server20101 rnr_retries 2
fi

log "shared Receives"
served 20102 '?srq=64'
exchange 20102 ''
[ "$FABRIC" = siw ] || is put rnr_retries 7

if [ "$FABRIC" = rxe ]; then
  is put mtu 1024
  log "another MTU of the interface"
  ip link set dm0 mtu 4200
  exchange 20100 ''
  is put mtu 4096
  is server20100 mtu 4096
  ip link set dm0 mtu 1500
fi

log "values outside their bounds"
for option in tclass=256 ack_timeout=0 ack_timeout=32 retries=8 rnr_retries=8 relaxed=yes; do
  refuse 5 "unknown option .$option., expected .*tclass=0-255" "$BIN/blobstore" put "rdma://$ADDR:20100?$option" file source
done
