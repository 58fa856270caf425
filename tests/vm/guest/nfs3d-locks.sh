# nfs3d with locks, and two clients of it: the guest, over RDMA, and a host of its own, over TCP.
#
#   $A, $B     the mounts of the two clients
#   $EXPORT    the server's folder
#   ON_SERVER  runs a command on the server's host, ON_OTHER on that of the second client

. /suite/guest/nfs3d.sh
SERVER=10.9.3.1 CLIENT=10.9.3.2 OTHER=10.9.4.2 A=$SCRATCH/a EXPORT=$SCRATCH/export

# host_up NAME NUMBER: makes a host with a network, an rpcbind and a name of its own, because Linux's lock manager and status monitor
# run on the first client. An interface connects it to that client, with the addresses 10.9.NUMBER.1 for the host and 10.9.NUMBER.2
# for the other end. $SCRATCH is the same folder on all hosts, but each has its own mounts.
host_up() {
  start "$1" unshare --net --mount --uts bash -c "echo $1 >/proc/sys/kernel/hostname && exec sleep infinity"
  eventually 10 host_is_named "$1"
  nsenter --target "${PID[$1]}" --net --mount bash -e <<END
ip link set lo up
mount --bind $SCRATCH /mnt
mount -t tmpfs tmpfs /run
mkdir $SCRATCH
mount --bind /mnt $SCRATCH
mount -t tmpfs tmpfs /var/lib/nfs
mkdir /var/lib/nfs/sm /var/lib/nfs/sm.bak
rpcbind -w
END
}
host_is_named() { [ "$(nsenter --target "${PID[$1]}" --uts cat /proc/sys/kernel/hostname)" = "$1" ]; }

# locks_up: starts nfs3d with locks on the server's host
locks_up() {
  start nfs3d-locks "${ON_SERVER[@]}" "$BIN/nfs3d" --root "$EXPORT" --state "$SCRATCH/state" --export /export --no-root-squash \
    --listen "iwarp://$SERVER:20049" --listen "tcp://$SERVER:2049" --mount "tcp://$SERVER:20048" \
    --locks "tcp://$SERVER:20051" --rpcbind --grace 10 --acl -vv
  eventually 20 registered || fail "nfs3d did not register its services: $(last_words nfs3d-locks)"
}
registered() { rpcinfo -p "$SERVER" 2>/dev/null | grep -q ' 100021 .* 20051 ' && logged 'NSM on'; }
logged() { grep -q "$1" "$SCRATCH/nfs3d-locks.out"; }

# clients_up: makes the hosts, starts the server and mounts its export on both clients
clients_up() {
  host_up server
  host_up other
  ON_SERVER=(nsenter --target "${PID[server]}" --net --mount --uts)
  ON_OTHER=(nsenter --target "${PID[other]}" --net --mount --uts)
  ip link add client type veth peer name server netns "${PID[server]}"
  ip address add "$CLIENT/24" dev client
  ip link set client up
  "${ON_SERVER[@]}" ip address add "$SERVER/24" dev server
  "${ON_SERVER[@]}" ip link set server up
  # The second client reaches the server's address through another interface.
  "${ON_SERVER[@]}" ip link add other type veth peer name other netns "${PID[other]}"
  "${ON_SERVER[@]}" ip address add "${OTHER%.*}.1/24" dev other
  "${ON_SERVER[@]}" ip link set other up
  "${ON_OTHER[@]}" ip address add "$OTHER/24" dev other
  "${ON_OTHER[@]}" ip link set other up
  "${ON_OTHER[@]}" ip route add "$SERVER" via "${OTHER%.*}.1"
  rdma link add siw7 type siw netdev client

  rpcbind -w
  eventually 10 rpcinfo -p localhost >/dev/null
  rpc.statd --no-notify
  "${ON_OTHER[@]}" rpc.statd --no-notify
  mkdir -p "$A" "$SCRATCH/b" "$EXPORT"
  locks_up
  local options=vers=3,mountproto=tcp,mountvers=3,mountport=20048
  try 30 mount -t nfs -o "$options,proto=rdma,port=20049" "$SERVER:/export" "$A"
  try 30 "${ON_OTHER[@]}" mount -t nfs -o "$options,proto=tcp,port=2049" "$SERVER:/export" "$SCRATCH/b"
  B=/proc/${PID[other]}/root$SCRATCH/b
  grep -q 'xprt:.*rdma' /proc/self/mountstats || fail "$A is mounted, but not over RDMA"
  if grep -E "^$SERVER.*(nolock|noacl)" "/proc/self/mounts" "/proc/${PID[other]}/mounts"; then
    fail "a client does not use locks or lists"
  fi
}

# clients_down: unmounts the export and ends the server, which must hold no lock
clients_down() {
  try 20 "${ON_OTHER[@]}" umount "$SCRATCH/b"
  try 20 umount "$A"
  nfs3d_down locks
  grep -qx 'locks: 0 still held on 0 files' "$SCRATCH/nfs3d-locks.out" || fail "locks remain: $(last_words nfs3d-locks)"
  rdma link delete siw7
}
