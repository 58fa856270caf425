# about: a table without verdict: metadata operations of Linux's client with nfs3d, compared with Linux's server (and with $BIN/nfs3d-before, if put there)
# fabric: rxe
# programs: nfs3d
# timeout: 900
# clock: counted
. /suite/guest/nfs3d.sh
# Each operation is one process with many arguments, so the time is that of the calls.
knfsd_up
nfs_mount 3 "$SCRATCH/kernel" actimeo=0
nfs3d_up meta "rdma://$ADDR:20100" 20101 --no-root-squash
nfs3d_mount "$SCRATCH/ours" 20100 20101 actimeo=0
if [ -x "$BIN/nfs3d-before" ]; then
  mkdir -p export-before
  start before "$BIN/nfs3d-before" --root "$SCRATCH/export-before" --state "$SCRATCH/state-before" --export /export \
    --listen "rdma://$ADDR:20200" --mount "tcp://$ADDR:20201" --no-root-squash
  eventually 10 grep -q '^MOUNT on' before.out
  nfs3d_mount "$SCRATCH/before" 20200 20201 actimeo=0
fi
chmod 1777 /srv/nfs "$SCRATCH"/export-*
REPORT=/out/$CASE.md
files=$(seq -f file-%g 1 200)
# The client's user: root acts as the server's own user, others are switched to.
as() { case $user in root) "$@" ;; *) setpriv --reuid=1000 --regid=1000 --clear-groups "$@" ;; esac; }
declare -A took=()
timed() { # timed OPERATION COMMAND..
  local operation=$1 begun
  shift
  begun=${EPOCHREALTIME//./}
  as "$@" >/dev/null || fail "$operation failed"
  took[$server,$operation]=$((${EPOCHREALTIME//./} - begun))
}
operations='statfs create getattr chmod lookup-none list rename remove'
{
  echo "Linux $(uname -r) in a guest, $DEVICE, clock: $CLOCK; microseconds of each operation of Linux's client"
  echo
  echo '| user | operation | Linux | nfs3d | ratio | before |'
  echo '| --- | --- | --- | --- | --- | --- |'
} >"$REPORT"
servers='kernel ours'
[ ! -x "$BIN/nfs3d-before" ] || servers+=' before'
for user in root other; do
  for server in $servers; do
    mkdir "$SCRATCH/$server/$user"
    chmod 777 "$SCRATCH/$server/$user"
    cd "$SCRATCH/$server/$user"
    # shellcheck disable=SC2046,SC2086
    {
      as stat -f . >/dev/null
      timed statfs stat -f $(yes . | head -n 200)
      timed create touch $files
      timed getattr stat $files
      timed chmod chmod 600 $files
      timed lookup-none rm -f $(seq -f none-%g 1 200)
      timed list ls -l $(yes . | head -n 20)
      as mkdir to
      timed rename mv $files to
      cd to
      timed remove rm -f $files
    }
    cd "$SCRATCH"
    log "$server $user done"
  done
  for operation in $operations; do
    awk -v user=$user -v name=$operation -v a="${took[kernel,$operation]}" -v b="${took[ours,$operation]}" -v c="${took[before,$operation]:-0}" \
      -v n="$([ $operation = list ] && echo 20 || echo 200)" \
      'BEGIN { printf "| %s | %s | %.0f | %.0f | %.2f | %.0f |\n", user, name, a / n, b / n, b / a, c / n }' >>"$REPORT"
  done
done
log "results"
cat "$REPORT"
for server in $servers; do umount "$SCRATCH/$server"; done
nfs3d_down meta
