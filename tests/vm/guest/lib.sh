# What cases are written with. A case ends at the first command that fails; `fail` says why in its own words.
#
#   $FABRIC  rxe or siw          $DEVICE  rxe0 or siw0
#   $CLOCK   real, or counted: by instructions
#   $ADDR    the device's IPv4 address, $ADDR6 its IPv6 address
#   $BIN     the project's programs
#   $SCRATCH a folder in memory, empty at the start

ADDR=10.9.1.1 ADDR6=fd09::1
DEVICE=${FABRIC}0
BIN=/bin-under-test
SCRATCH=/run/scratch
rm -rf $SCRATCH
mkdir -p $SCRATCH
mount -t tmpfs tmpfs $SCRATCH
cd $SCRATCH

log() { echo "[$(cut -d' ' -f1 /proc/uptime)] $*"; }
because() { echo "$*" >>/run/reason; }
fail() { # fail WHY..
  trap - ERR
  because "$*"
  log "FAIL: $*"
  exit 1
}

# start NAME COMMAND..: in the background, output in $SCRATCH/NAME.out; its process is ${PID[NAME]}
declare -A PID=()
start() {
  local name=$1
  shift
  log "start $name: $*"
  "$@" >"$SCRATCH/$name.out" 2>&1 &
  PID[$name]=$!
}

# finish NAME SECONDS: waits until it has ended by itself, and well
finish() {
  local name=$1 limit=$2 code=0
  eventually "$limit" ended_process "${PID[$name]}" || fail "$name is still running after $limit s; last words: $(last_words "$name")"
  wait "${PID[$name]}" || code=$?
  [ $code -eq 0 ] || fail "$name ended with code $code; last words: $(last_words "$name")"
}

# stop NAME: ends it with SIGTERM, with SIGKILL after 5 seconds
stop() {
  local pid=${PID[$1]}
  kill "$pid" 2>/dev/null || true
  eventually 5 ended_process "$pid" || kill -9 "$pid" 2>/dev/null || true
  wait "$pid" 2>/dev/null || true
}
ended_process() { [ ! -e "/proc/$1/status" ] || grep -qs '^State:.Z' "/proc/$1/status"; }
last_words() { grep -v '^$' "$SCRATCH/$1.out" | tail -n 1; }

# eventually SECONDS COMMAND..: until it succeeds
eventually() {
  local end=$((${EPOCHREALTIME/./} + $1 * 1000000))
  shift
  until "$@"; do
    [ "${EPOCHREALTIME/./}" -lt $end ] || return 1
    sleep 0.1
  done
}

# try SECONDS COMMAND..: in the foreground, bounded; what it prints goes into the log, its last line into the reason
try() {
  local limit=$1 code=0
  shift
  log "try: $*"
  timeout --kill-after=2 "$limit" "$@" >"$SCRATCH/try.out" 2>&1 || code=$?
  cat "$SCRATCH/try.out"
  [ $code -ne 124 ] && [ $code -ne 137 ] || fail "$*: not done after $limit s; last words: $(last_words try)"
  [ $code -eq 0 ] || fail "$*: exit code $code; last words: $(last_words try)"
}

# refuse SECONDS PATTERN COMMAND..: it must fail within that time, and say something that matches PATTERN
refuse() {
  local limit=$1 pattern=$2 code=0
  shift 2
  log "refuse: $*"
  timeout --kill-after=2 "$limit" "$@" >"$SCRATCH/try.out" 2>&1 || code=$?
  cat "$SCRATCH/try.out"
  [ $code -ne 0 ] || fail "$*: succeeded, and should have failed"
  [ $code -ne 124 ] && [ $code -ne 137 ] || fail "$*: not done after $limit s; last words: $(last_words try)"
  [ $code -lt 128 ] && [ $code -ne 101 ] || fail "$*: crashed with code $code; last words: $(last_words try)"
  grep -qE "$pattern" "$SCRATCH/try.out" || fail "$*: failed, but does not say $pattern; last words: $(last_words try)"
}

# rping_client SECONDS COUNT ARGUMENTS..: COUNT pings, all of which must come back right. (rping ends with code 0 also
# if the server disconnects early.) rdma_cm counts ports by itself, and siw finds that TCP has the one it was given: rping
# says so and hangs, before its server has heard of it; then with another port.
rping_client() {
  local limit=$1 count=$2 code=0 came
  shift 2
  for _ in {1..8}; do
    start rping_client timeout --kill-after=2 "$limit" rping -c -v -V -C "$count" "$@"
    eventually $((limit + 3)) rping_client_is_done || true
    rping_client_has_no_port || break
    log "rping was given a port that TCP has: once more"
    stop rping_client
  done
  wait "${PID[rping_client]}" || code=$?
  cut -c 1-100 "$SCRATCH/rping_client.out"
  [ $code -eq 0 ] || fail "rping $*: exit code $code; last words: $(last_words rping_client | cut -c 1-200)"
  came=$(grep -c '^ping data: rdma-ping-' "$SCRATCH/rping_client.out") || true
  [ "$came" -eq "$count" ] || fail "rping $*: $came of $count pings came back"
}
rping_client_has_no_port() { grep -q '^rdma_connect: Address already in use' "$SCRATCH/rping_client.out"; }
rping_client_is_done() { ended_process "${PID[rping_client]}" || rping_client_has_no_port; }

# capture NAME: packets between the guest's own addresses to NAME.pcap beside the case's log
capture() {
  start tcpdump tcpdump -Z root -i lo -s 0 -U --immediate-mode -w "$SCRATCH/$1.pcap"
  CAPTURE=$1
  eventually 10 grep -q 'listening on' "$SCRATCH/tcpdump.out"
}

# listening PORT: whether a kernel RDMA or TCP listener has the port
listening() { rdma resource show cm_id 2>/dev/null | grep -q "state LISTEN.*:$1 " || ss -Hltn "sport = :$1" | grep -q .; }

# without_link SECONDS: the link is down for so long
without_link() {
  ip link set dm0 down
  sleep "$1"
  ip link set dm0 up
  # IPv6 addresses are lost with the link; later cases want this one.
  ip address replace "$ADDR6/64" dev dm0 nodad
}

# device_made, other_device_made: the RDMA device; another, at $OTHER_ADDR
OTHER_ADDR=10.9.2.1
device_made() { rdma link add "$DEVICE" type "$FABRIC" netdev dm0; }
other_device_made() {
  ip link add dm1 type dummy
  ip link set dm1 up
  ip address add "$OTHER_ADDR/24" dev dm1
  rdma link add "${FABRIC}1" type "$FABRIC" netdev dm1
}

# device_gone SECONDS [COMMAND..]: removes the RDMA device, which for these drivers takes until no process has it open.
# librdmacm keeps a device open until it meets another: COMMAND is to see to that.
device_gone() {
  local removal limit=$1
  shift
  log "removing $DEVICE"
  rdma link delete "$DEVICE" &
  # Not one of those that are stopped in the end: it ends when the others have.
  removal=$!
  "$@"
  eventually "$limit" ended_process "$removal" || fail "the device cannot be removed: who uses it does not let go"
  wait "$removal" || fail "the device could not be removed"
}

# knfsd_up: Linux's NFS server, /srv/nfs in memory exported over RDMA on port 20049, and MOUNT over TCP
knfsd_up() {
  modprobe -a nfsd rpcrdma lockd
  # The lock manager's grace period, during which nothing is delegated: 3 seconds instead of 50.
  echo 1 >/proc/sys/fs/nfs/nlm_grace_period
  echo 3 >/proc/sys/fs/nfs/nlm_timeout
  mountpoint -q /proc/fs/nfsd || mount -t nfsd nfsd /proc/fs/nfsd
  mkdir -p /srv/nfs
  mount -t tmpfs tmpfs /srv/nfs
  chmod 1777 /srv/nfs
  rpcbind -w
  eventually 10 rpcinfo -p localhost >/dev/null
  echo '/srv/nfs *(rw,fsid=0,no_root_squash,insecure,no_subtree_check)' >/etc/exports
  exportfs -ra
  rpc.mountd
  knfsd_start
}

# knfsd_start: with what is exported already; for the first time, or after `rpc.nfsd 0`
knfsd_start() {
  rpc.nfsd --no-udp 4
  # NFS 4's grace period: there is nobody from before to reclaim anything.
  echo Y >/proc/fs/nfsd/v4_end_grace
  echo 'rdma 20049' >/proc/fs/nfsd/portlist
}

# nfs_mount VERSION FOLDER [OPTIONS]: of knfsd's export, over RDMA, to FOLDER
nfs_mount() {
  local options=vers=$1,proto=rdma,port=20049 source=/
  case $1 in 3) options+=,mountproto=tcp,mountvers=3,nolock source=/srv/nfs ;; esac
  mkdir -p "$2"
  try 30 mount -t nfs -o "$options${3:+,$3}" "$ADDR:$source" "$2"
  grep -q 'xprt:.*rdma' /proc/self/mountstats || fail "$2 is mounted, but not over RDMA"
}

# digest FOLDER: of every name and content below it
digest() { (cd "$1" && find . -type f -print0 | sort -z | xargs -0 -r sha256sum | sha256sum | cut -d' ' -f1); }

# make_tree FOLDER: empty, tiny, odd-sized and large files, folders, an awkward name
make_tree() {
  local size
  mkdir -p "$1/a/b c" "$1/empty"
  for size in 0 1 3 4095 4096 4097 65535 1000003 $((16 << 20)); do head -c "$size" /dev/urandom >"$1/$size"; done
  head -c 12345 /dev/urandom >"$1/a/b c/näme with 'quotes'"
  for size in {1..40}; do echo "file $size" >"$1/a/$size"; done
}

# long_file FILE: of so many octets that there is time for something to happen while it is copied
long_file() {
  local mebibytes=256
  ! grep -q 'QEMU TCG' /proc/cpuinfo || mebibytes=48
  head -c $((mebibytes << 20)) /dev/urandom >"$1"
}

show_state() { # for the log of a failed case
  local name
  log "state at the failure:"
  for name in "${!PID[@]}"; do
    echo "--- $name"
    tail -n 40 "$SCRATCH/$name.out" 2>/dev/null
  done
  echo "--- processes"
  ps -e -o pid,stat,wchan:20,args | grep -v '\]$'
  echo "--- sockets and RDMA connections"
  ss -Hatn
  rdma resource show qp 2>/dev/null
  echo "--- kernel"
  dmesg | tail -n 30
}

cleanup() {
  local name where
  for where in $(awk '$3 ~ /^nfs4?$/ {print $2}' /proc/self/mounts); do umount -f "$where" || umount -l "$where"; done
  for name in "${!PID[@]}"; do stop "$name"; done
  if [ -e /proc/fs/nfsd/threads ]; then
    rpc.nfsd 0
    exportfs -ua
  fi
  if [ -e /sys/class/net/dm1 ]; then
    rdma link delete "${FABRIC}1"
    ip link delete dm1
  fi
  # Where a case has failed in between: the others want them.
  [ -z "${PORT_RANGE:-}" ] || echo "$PORT_RANGE" >/proc/sys/net/ipv4/ip_local_port_range
  [ -e "/sys/class/infiniband/$DEVICE" ] || device_made
  if [ -n "${CAPTURE:-}" ] && [ -e "$SCRATCH/$CAPTURE.pcap" ]; then cp "$SCRATCH/$CAPTURE.pcap" "/out/$CAPTURE.pcap"; fi
}
