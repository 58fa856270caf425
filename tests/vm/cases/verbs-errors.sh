# about: no RDMA device, no permission, not enough locked memory, no server: a message that says what to do
# fabric: rxe siw
# alternate: yes
# programs: nfs3d rdmacheck rpcping
# timeout: 90
. /suite/guest/nfs3d.sh
ping() { "$BIN/rpcping" "$1" --program 1 --version 1 -c 1 --timeout "${2:-5}"; }
export -f ping
export BIN

log "no server"
refuse 15 'no server is listening|refused' bash -c "ping rdma://$ADDR:7999"

log "an address that no RDMA device leads to"
refuse 15 'no RDMA device leads to 192.0.2.1' bash -c 'ping rdma://192.0.2.1:7999'

log "too little memory may be locked"
refuse 30 'ulimit -l unlimited' bash -c "ulimit -l 64; setpriv --reuid 65534 --clear-groups '$BIN/rdmacheck' $ADDR --case sends_arrive"

# Partial resources have to be released in the right order: an identifier whose event channel is gone writes to freed memory.
! grep 'could not be destroyed' "$SCRATCH/try.out" || fail "a queue pair that was not made: $(last_words try)"

log "no permission"
chmod 600 /dev/infiniband/*
refuse 15 'no permission to use RDMA.*/dev/infiniband' setpriv --reuid 65534 --clear-groups "$BIN/rpcping" "rdma://$ADDR:7999" --program 1 --version 1 -c 1
chmod 666 /dev/infiniband/*

log "TCP uses a third of the local ports"
PORT_RANGE=$(cat /proc/sys/net/ipv4/ip_local_port_range) # restored when the case ends
echo "40000 40059" >/proc/sys/net/ipv4/ip_local_port_range
listen=()
for port in {40000..40059..3}; do listen+=(--listen "tcp://$ADDR:$port"); done
nfs3d_up ports "rdma://$ADDR:20049" 20048 "${listen[@]}"
for _ in {1..12}; do try 10 "$BIN/rpcping" "rdma://$ADDR:20049" --program nfs --version 3 -c 1 -q; done
nfs3d_down ports

log "no device"
device_gone 20
refuse 15 'rdma link add' "$BIN/rdmacheck" "$ADDR"
refuse 15 'rdma link add|no RDMA device' bash -c "ping rdma://$ADDR:7999"
device_made
