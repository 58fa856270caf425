# nfs_roundtrip MOUNT EXPORT: a tree goes to the server through MOUNT and back, without and with the page cache, and is
# compared at each step with what the server has in EXPORT.
nfs_roundtrip() {
  local mnt=$1 export=$2 tree=$SCRATCH/tree want
  make_tree "$tree"
  want=$(digest "$tree")

  log "copy in"
  try 30 cp -r "$tree" "$mnt/in"
  sync -f "$mnt"
  [ "$(digest "$export/in")" = "$want" ] || fail "what the server has differs from what was copied in"

  log "copy out, nothing cached"
  echo 3 >/proc/sys/vm/drop_caches
  try 30 cp -r "$mnt/in" "$SCRATCH/out"
  [ "$(digest "$SCRATCH/out")" = "$want" ] || fail "what was copied out differs from what was copied in"

  log "direct I/O"
  try 20 dd if="$tree/$((16 << 20))" of="$mnt/direct" bs=1M oflag=direct
  cmp "$tree/$((16 << 20))" "$export/direct" || fail "direct writes arrived differently"
  try 20 dd if="$mnt/direct" of="$SCRATCH/direct" bs=1M iflag=direct
  cmp "$tree/$((16 << 20))" "$SCRATCH/direct" || fail "direct reads returned something else"

  log "unmount"
  rm -r "$mnt/in" "$mnt/direct"
  [ -z "$(ls -A "$export")" ] || fail "files removed through the mount are still on the server"
  try 20 umount "$mnt"
}
