# Faults of nfs3d and its clients: the server is killed and restarted, the link goes down, clients are killed.
. /suite/guest/nfs3d.sh

open_files() { find "/proc/$1/fd" -mindepth 1 2>/dev/null | wc -l; }
has_at_most() { [ "$(open_files "$1")" -le "$2" ]; } # has_at_most PID FILES

link_down() {
  log "the link goes down for 3 seconds, while Linux reads"
  read_started
  without_link 3
  read_goes_on
}

# link_down_idle: the link goes down while the connection is idle, which has to survive
link_down_idle() {
  log "the link goes down for 3 seconds, while nothing is in flight"
  without_link 3
  grep -q "the RDMA device's port is down" "$SCRATCH/nfs3d-a.out" || fail "nfs3d does not say that the port was down"
  read_started
  read_goes_on
}

# device_replugged: removes the device and adds it again while nfs3d runs. On rxe the link is down first. After that, no program
# can open a new connection until the device is added again (README.md).
device_replugged() {
  log "the device is removed, while Linux reads, and comes back"
  other_device_made
  read_started
  case $FABRIC in rxe)
    # Linux 7's client keeps a removed rxe device for ever if it has unanswered calls: README.md.
    if is_linux_7; then
      log "not tried with Linux 7"
      read_goes_on
      return 0
    fi
    without_link 3
    ;;
  esac
  device_gone 20 try 15 "$BIN/rpcping" "rdma://$OTHER_ADDR:20063" --program 100003 --version 3 -c 1
  ended_process "${PID[nfs3d-a]}" && fail "nfs3d ended when its device was removed: $(last_words nfs3d-a)"
  device_made
  read_goes_on
  # The read may have ended before the removal, so nothing has waited for the server yet.
  eventually 15 grep -q 'listening again' "$SCRATCH/nfs3d-a.out" || fail "nfs3d did not notice the removal, the test shows nothing"
}

read_started() {
  forget
  rm -f back
  start dd dd if="$mnt/written" of=back bs=64k
  partly back dd
}
read_goes_on() {
  finish dd 60
  cmp source back || fail "the data that Linux read meanwhile differs"
}

# nfs3d_faults SCHEME
nfs3d_faults() {
  local url=$1://$ADDR:20061 export=$SCRATCH/export-a mnt=$SCRATCH/mnt files
  local options=(--no-root-squash)
  # On all interfaces, including those of a device that is added later.
  case $1 in rdma) options+=(--listen rdma://0.0.0.0:20063) ;; esac
  long_file source
  nfs3d_up a "$url" 20062 "${options[@]}"
  nfs3d_mount "$mnt" 20061 20062

  log "killed and restarted while Linux writes"
  start dd dd if=source of="$mnt/written" bs=1M conv=fsync
  partly "$export/written" dd
  kill -9 "${PID[nfs3d-a]}"
  wait "${PID[nfs3d-a]}" || true
  nfs3d_up a "$url" 20062 "${options[@]}"
  finish dd 60
  cmp source "$export/written" || fail "the data that Linux wrote across a restart of the server differs"

  case $FABRIC-$1 in
    rxe-rdma)
      link_down_idle
      device_replugged
      ;;
    siw-rdma)
      link_down
      device_replugged
      ;;
    siw-iwarp) link_down ;;
  esac
  try 20 umount "$mnt"

  log "clients are killed with calls in flight"
  files=$(open_files "${PID[nfs3d-a]}")
  for _ in 1 2 3; do
    rm -f "$export/killed"
    start nfscp "$BIN/nfscp" -j 16 --chunk-size 64KiB --mount-port 20062 source "nfs3+$url/export/killed"
    partly "$export/killed" nfscp
    kill -9 "${PID[nfscp]}"
    wait "${PID[nfscp]}" || true
  done
  eventually 15 has_at_most "${PID[nfs3d-a]}" "$files" ||
    fail "the server keeps files or connections of killed clients: $(open_files "${PID[nfs3d-a]}"), $files before"
  try 30 "$BIN/nfscp" --mount-port 20062 --verify source "nfs3+$url/export/after"
  # All memory that was registered for the calls of these clients has been released.
  nfs3d_down a
  # At least Linux's connections and those of the three killed clients are counted.
  awk -F '[ :]+' '/^connections:/ { if ($2 < 5 || $4 != 0) exit 1 }' "$SCRATCH/nfs3d-a.out" || fail "nfs3d did not count all of its connections"
}
