# about: the commands of libnfs list, read and write files of nfs3d
# peer: libnfs-utils
# from: trixie
# limit: 240
# tools: ip unshare
. "$TOP/tests/foreign/lib.sh"
mount_root
queries=('?nfsport=2049&mountport=20048')
if can_run_rpcbind; then
  start_rpcbind
  start_nfs3d --rpcbind
  queries+=('')
else
  start_nfs3d
fi
make_files export 0 1 4095 65537 1048577 $((20 << 20))
make_files export/folder 7
chmod 640 export/4095
(mkdir export/many && cd export/many && seq -f 'entry number %04.0f of a long listing' 400 | xargs -d '\n' touch)
make_files files 0 3 4097 1048575 $((20 << 20))

# The ports as options, and from rpcbind.
for query in "${queries[@]}"; do
  log "nfs-ls with \"$query\""
  in_root nfs-ls "nfs://127.0.0.1/e$query" >listing
  for name in 0 1 4095 65537 1048577 $((20 << 20)); do
    awk -v name="$name" '$NF == name && $5 == name && /^-/ { found = 1 } END { exit !found }' listing ||
      fail "the file $name is not in the listing with its size"
  done
  grep -qE '^drwx.* folder$' listing || fail "the folder is not in the listing"
  grep -qE '^-rw-r----- .* 4095$' listing || fail "the mode is not in the listing"
  in_root nfs-ls "nfs://127.0.0.1/e/many$query" >listing
  listed=$(grep -c 'entry number' listing)
  [ "$listed" -eq 400 ] || fail "$listed of 400 entries are in the listing"

  log "nfs-cat and nfs-cp with \"$query\""
  for name in 0 1 4095 65537 1048577 $((20 << 20)); do
    in_root nfs-cat "nfs://127.0.0.1/e/$name$query" >cat
    same cat "export/$name"
    rm -f copy
    in_root nfs-cp "nfs://127.0.0.1/e/$name$query" /case/copy
    same copy "export/$name"
  done
  for name in 0 3 4097 1048575 $((20 << 20)); do
    rm -f "export/new-$name"
    in_root nfs-cp "/case/files/$name" "nfs://127.0.0.1/e/new-$name$query"
    same "files/$name" "export/new-$name"
  done
  refused 'NOENT|No such file' in_root nfs-cat "nfs://127.0.0.1/e/absent$query"
  refused 'NOENT|MNT3ERR' in_root nfs-ls "nfs://127.0.0.1/elsewhere$query"
done
