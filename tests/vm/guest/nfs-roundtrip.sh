# nfs_roundtrip MOUNT EXPORT: copies a tree to the server through MOUNT and back, without and with the page cache. Each step is
# compared with the contents of EXPORT at the server.
nfs_roundtrip() {
  local mnt=$1 export=$2 tree=$SCRATCH/tree want
  make_tree "$tree"
  want=$(digest "$tree")

  log "copy in"
  try 30 cp -r "$tree" "$mnt/in"
  sync -f "$mnt"
  [ "$(digest "$export/in")" = "$want" ] || fail "the files at the server differ from those copied in"

  log "copy out, nothing cached"
  echo 3 >/proc/sys/vm/drop_caches
  try 30 cp -r "$mnt/in" "$SCRATCH/out"
  [ "$(digest "$SCRATCH/out")" = "$want" ] || fail "the files copied out differ from those copied in"

  log "direct I/O"
  try 20 dd if="$tree/$((16 << 20))" of="$mnt/direct" bs=1M oflag=direct
  cmp "$tree/$((16 << 20))" "$export/direct" || fail "direct writes differ at the server"
  try 20 dd if="$mnt/direct" of="$SCRATCH/direct" bs=1M iflag=direct
  cmp "$tree/$((16 << 20))" "$SCRATCH/direct" || fail "direct reads returned other data"

  log "unmount"
  rm -r "$mnt/in" "$mnt/direct"
  [ -z "$(ls -A "$export")" ] || fail "files removed through the mount are still on the server"
  try 20 umount "$mnt"
}
