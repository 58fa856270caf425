# Functions for cases. A case ends at the first command that fails; `fail` gives a reason.
#
#   $FABRIC  rxe, siw or tcp     $DEVICE  rxe0 or siw0, none with tcp
#   $CLOCK   real, or counted (by instructions)
#   $EXTENT  short, or long (--long): includes parts that take minutes
#   $ADDR    the device's IPv4 address, $ADDR6 its IPv6 address
#   $BIN     the programs of the project, or of --bin
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

# start NAME COMMAND..: runs a command in the background, with output in $SCRATCH/NAME.out; ${PID[NAME]} is its process
declare -A PID=()
start() {
  local name=$1
  shift
  log "start $name: $*"
  "$@" >"$SCRATCH/$name.out" 2>&1 &
  PID[$name]=$!
}

# finish NAME SECONDS: waits until it has ended successfully
finish() {
  local name=$1 limit=$2 code=0
  eventually "$limit" ended_process "${PID[$name]}" || fail "$name is still running after $limit s; last words: $(last_words "$name")"
  wait "${PID[$name]}" || code=$?
  [ $code -eq 0 ] || fail "$name ended with code $code; last words: $(last_words "$name")"
}

# stop NAME: ends it with SIGTERM, and with SIGKILL after 5 seconds
stop() {
  local pid=${PID[$1]}
  kill "$pid" 2>/dev/null || true
  eventually 5 ended_process "$pid" || kill -9 "$pid" 2>/dev/null || true
  wait "$pid" 2>/dev/null || true
}
ended_process() { [ ! -e "/proc/$1/status" ] || grep -qs '^State:.Z' "/proc/$1/status"; }
last_words() { grep -v '^$' "$SCRATCH/$1.out" | tail -n 1; }

# eventually SECONDS COMMAND..: repeats a command until it succeeds
eventually() {
  local end=$((${EPOCHREALTIME/./} + $1 * 1000000))
  shift
  until "$@"; do
    [ "${EPOCHREALTIME/./}" -lt $end ] || return 1
    sleep 0.1
  done
}

# try SECONDS COMMAND..: runs a command with a time limit; its output goes to the log, and its last line to the reason of a
# failure
try() {
  local limit=$1 code=0
  shift
  log "try: $*"
  timeout --kill-after=2 "$limit" "$@" >"$SCRATCH/try.out" 2>&1 || code=$?
  cat "$SCRATCH/try.out"
  [ $code -ne 124 ] && [ $code -ne 137 ] || fail "$*: not done after $limit s; last words: $(last_words try)"
  [ $code -eq 0 ] || fail "$*: exit code $code; last words: $(last_words try)"
}

# refuse SECONDS PATTERN COMMAND..: a command must fail within that time with output that matches PATTERN
refuse() {
  local limit=$1 pattern=$2 code=0
  shift 2
  log "refuse: $*"
  timeout --kill-after=2 "$limit" "$@" >"$SCRATCH/try.out" 2>&1 || code=$?
  cat "$SCRATCH/try.out"
  [ $code -ne 0 ] || fail "$*: succeeded, but should have failed"
  [ $code -ne 124 ] && [ $code -ne 137 ] || fail "$*: not done after $limit s; last words: $(last_words try)"
  [ $code -lt 128 ] && [ $code -ne 101 ] || fail "$*: crashed with code $code; last words: $(last_words try)"
  grep -qE "$pattern" "$SCRATCH/try.out" || fail "$*: failed, but does not say $pattern; last words: $(last_words try)"
}

# rping_client SECONDS COUNT ARGUMENTS..: makes COUNT pings, all of which must come back correctly. (rping ends with code 0 also
# if the server disconnects early.) rdma_cm allocates ports independently of TCP, and siw may find that TCP uses the port. Then
# rping reports this and hangs before it has reached its server. In that case, try another port.
rping_client() {
  local limit=$1 count=$2 code=0 came
  shift 2
  for _ in {1..8}; do
    start rping_client timeout --kill-after=2 "$limit" rping -c -v -V -C "$count" "$@"
    eventually $((limit + 3)) rping_client_is_done || true
    rping_client_has_no_port || break
    log "rping got a port that TCP uses, retrying"
    stop rping_client
  done
  wait "${PID[rping_client]}" || code=$?
  cut -c 1-100 "$SCRATCH/rping_client.out"
  came=$(grep -c '^ping data: rdma-ping-' "$SCRATCH/rping_client.out") || true
  # At its end, one thread of rping may close what another thread waits for.
  if [ "$came" -eq "$count" ] && grep -q '^rdma_get_cm_event: Bad file descriptor' "$SCRATCH/rping_client.out"; then code=0; fi
  [ $code -eq 0 ] || fail "rping $*: exit code $code; last words: $(last_words rping_client | cut -c 1-200)"
  [ "$came" -eq "$count" ] || fail "rping $*: $came of $count pings came back"
}
rping_client_has_no_port() { grep -q '^rdma_connect: Address already in use' "$SCRATCH/rping_client.out"; }
rping_client_is_done() { ended_process "${PID[rping_client]}" || rping_client_has_no_port; }

# capture NAME: captures packets between the guest's own addresses to NAME.pcap next to the case's log
capture() {
  start tcpdump tcpdump -Z root -i lo -s 0 -U --immediate-mode -w "$SCRATCH/$1.pcap"
  CAPTURE=$1
  eventually 10 grep -q 'listening on' "$SCRATCH/tcpdump.out"
}

# listening PORT: succeeds if a kernel RDMA or TCP listener uses the port
listening() { rdma resource show cm_id 2>/dev/null | grep -q "state LISTEN.*:$1 " || ss -Hltn "sport = :$1" | grep -q .; }

# is_linux_7: succeeds with Linux 7 or later, which differs in what its drivers do
is_linux_7() { [ "$(uname -r | cut -d. -f1)" -ge 7 ]; }

# mount_limit: prints the seconds after which a mount over RDMA has failed. siw of Linux 7.3 often does not notice the first call of a
# connection (see README.md), and Linux's client connects again only after 60 s.
mount_limit() { if [ "$FABRIC" = siw ] && is_linux_7; then echo 200; else echo 30; fi; }

# without_link SECONDS: takes the link down for that time
without_link() {
  ip link set dm0 down
  sleep "$1"
  ip link set dm0 up
  # The link takes its IPv6 addresses with it, and later cases need this one.
  ip address replace "$ADDR6/64" dev dm0 nodad
}

# device_made, other_device_made: adds the RDMA device; adds another one at $OTHER_ADDR
OTHER_ADDR=10.9.2.1
device_made() { rdma link add "$DEVICE" type "$FABRIC" netdev dm0; }
other_device_made() {
  ip link add dm1 type dummy
  ip link set dm1 up
  ip address add "$OTHER_ADDR/24" dev dm1
  rdma link add "${FABRIC}1" type "$FABRIC" netdev dm1
}

# device_gone SECONDS [COMMAND..]: removes the RDMA device. With these drivers that takes until no process has it open.
# librdmacm keeps a device open until it finds another one; COMMAND has to make it do so.
device_gone() {
  local removal limit=$1
  shift
  log "removing $DEVICE"
  rdma link delete "$DEVICE" &
  # Not in PID, whose processes are stopped at the end: it ends after the others.
  removal=$!
  "$@"
  eventually "$limit" ended_process "$removal" || fail "the device cannot be removed, a process still uses it"
  wait "$removal" || fail "the device could not be removed"
}

# knfsd_up: starts Linux's NFS server with /srv/nfs in memory, exported over RDMA on port 20049, or with the fabric tcp over TCP on
# port 2049, and MOUNT over TCP. $KNFSD_OPTIONS has more options of the export.
knfsd_up() {
  modprobe -a nfsd lockd
  [ "$FABRIC" = tcp ] || modprobe rpcrdma
  # The lock manager's grace period, during which there are no delegations: 3 seconds instead of 50.
  echo 1 >/proc/sys/fs/nfs/nlm_grace_period
  echo 3 >/proc/sys/fs/nfs/nlm_timeout
  mountpoint -q /proc/fs/nfsd || mount -t nfsd nfsd /proc/fs/nfsd
  mkdir -p /srv/nfs
  mount -t tmpfs tmpfs /srv/nfs
  chmod 1777 /srv/nfs
  rpcbind -w
  eventually 10 rpcinfo -p localhost >/dev/null
  echo '/srv/nfs *(rw,fsid=0,no_root_squash,insecure,no_subtree_check'"${KNFSD_OPTIONS:+,$KNFSD_OPTIONS})" >/etc/exports
  exportfs -ra
  rpc.mountd
  # Newer kernels remember clients only by this daemon, and do not end the grace period without it.
  if is_linux_7; then
    mkdir -p /run/rpc_pipefs /var/lib/nfs/nfsdcld
    mount -t rpc_pipefs rpc_pipefs /run/rpc_pipefs
    nfsdcld -p /run/rpc_pipefs -s /var/lib/nfs/nfsdcld
  fi
  knfsd_start
}

# knfsd_start: starts the server with its exports, for the first time or after `rpc.nfsd 0`
knfsd_start() {
  rpc.nfsd --no-udp 4
  # End NFS 4's grace period: no client has anything to reclaim. Newer kernels skip it without clients, and then refuse this.
  echo Y >/proc/fs/nfsd/v4_end_grace || log "there is no grace period to end"
  [ "$FABRIC" = tcp ] || echo 'rdma 20049' >/proc/fs/nfsd/portlist
}

# nfs_mount VERSION FOLDER [OPTIONS]: mounts knfsd's export over RDMA
nfs_mount() {
  local options=vers=$1,proto=rdma,port=20049 source=/
  case $1 in 3) options+=,mountproto=tcp,mountvers=3,nolock source=/srv/nfs ;; esac
  mkdir -p "$2"
  try "$(mount_limit)" mount -t nfs -o "$options${3:+,$3}" "$ADDR:$source" "$2"
  grep -q 'xprt:.*rdma' /proc/self/mountstats || fail "$2 is mounted, but not over RDMA"
}

# libraries_hidden LIBRARY..: renames libraries, for example libibverbs.so.1, as if their packages were not installed
HIDDEN=()
libraries_hidden() {
  local library file
  for library in "$@"; do
    file=$(ldconfig -p | sed -n "s/.*$library (.*x86-64.*) => //p")
    [ -e "$file" ] || fail "$library is not installed"
    HIDDEN+=("$file")
    mv "$file" "$file.hidden"
  done
}

# libraries_shown: reverses `libraries_hidden`
libraries_shown() {
  local file
  for file in "${HIDDEN[@]}"; do mv "$file.hidden" "$file"; done
  HIDDEN=()
}

# digest FOLDER: prints a digest of all names and contents in it
digest() { (cd "$1" && find . -type f -print0 | sort -z | xargs -0 -r sha256sum | sha256sum | cut -d' ' -f1); }

# make_tree FOLDER: creates empty, tiny, odd-sized and large files, folders, and an awkward name
make_tree() {
  local size
  mkdir -p "$1/a/b c" "$1/empty"
  for size in 0 1 3 4095 4096 4097 65535 1000003 $((16 << 20)); do head -c "$size" /dev/urandom >"$1/$size"; done
  head -c 12345 /dev/urandom >"$1/a/b c/näme with 'quotes'"
  for size in {1..40}; do echo "file $size" >"$1/a/$size"; done
}

# long_file FILE: creates a file that is large enough to interrupt a copy of it
long_file() {
  local mebibytes=256
  ! grep -q 'QEMU TCG' /proc/cpuinfo || mebibytes=48
  head -c $((mebibytes << 20)) /dev/urandom >"$1"
}

# partly FILE NAME: waits until some of FILE has arrived; fails if the process NAME has finished
partly() {
  local end=$((SECONDS + 30))
  until [ "$(stat -c %b "$1" 2>/dev/null || echo 0)" -gt 4000 ]; do
    [ $SECONDS -lt $end ] && ! ended_process "${PID[$2]}" || fail "no data arrives: $(last_words "$2")"
  done
  ! ended_process "${PID[$2]}" || fail "$2 finished before it could be interrupted"
}

show_state() { # writes the state of a failed case to the log
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
  # A failed case may not have restored these, and other cases need them.
  libraries_shown
  [ -z "${PORT_RANGE:-}" ] || echo "$PORT_RANGE" >/proc/sys/net/ipv4/ip_local_port_range
  [ "$FABRIC" = tcp ] || [ -e "/sys/class/infiniband/$DEVICE" ] || device_made
  if [ -n "${CAPTURE:-}" ] && [ -e "$SCRATCH/$CAPTURE.pcap" ]; then cp "$SCRATCH/$CAPTURE.pcap" "/out/$CAPTURE.pcap"; fi
}
