# about: six minutes of the soak: Linux's client with nfs3d, and nfscp's client with Linux's server, with kills, stops and restarts
# fabric: rxe
# programs: nfs3d rpcrdma-soak
# timeout: 900
. /suite/guest/nfs3d.sh
knfsd_up
declare -A mounted=() url=([a]=rdma://$ADDR:20061 [b]=rdma://$ADDR:20063)
declare -A mount_port=([a]=20062 [b]=20064)
for name in a b; do
  nfs3d_up $name "${url[$name]}" "${mount_port[$name]}" --no-root-squash
  mounted[$name]=$SCRATCH/mnt-$name
  nfs3d_mount "${mounted[$name]}" "${url[$name]##*:}" "${mount_port[$name]}"
done
start soak "$BIN/rpcrdma-soak" outside --minutes 6 --mounted "${mounted[a]}" --mounted "${mounted[b]}" \
  --nfs "nfs3+rdma://$ADDR:20049/srv/nfs" --process "nfs3d a=${PID[nfs3d-a]}"

killed() {
  kill -9 "${PID[nfs3d-b]}"
  wait "${PID[nfs3d-b]}" || true
  sleep 1
  nfs3d_up b "${url[b]}" "${mount_port[b]}" --no-root-squash
}
stopped() {
  kill -STOP "${PID[nfs3d-a]}"
  sleep 2
  kill -CONT "${PID[nfs3d-a]}"
}
restarted() {
  rpc.nfsd 0
  sleep 1
  knfsd_start
}
rounds=0
until ended_process "${PID[soak]}"; do
  for disturbance in killed stopped restarted forget; do
    ! ended_process "${PID[soak]}" || break
    log "$disturbance"
    $disturbance
    sleep 5
  done
  rounds=$((rounds + 1))
done
finish soak 1
cat "$SCRATCH/soak.out"
log "$rounds rounds of disturbances"
[ $rounds -ge 5 ] || fail "only $rounds rounds of disturbances"
for name in a b; do
  try 20 umount "${mounted[$name]}"
  nfs3d_down $name
done
