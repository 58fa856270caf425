# about: two of Linux's NFS 3 clients with the locks and the access control lists of nfs3d, through restarts of client and server
# fabric: siw
# programs: nfs3d
# timeout: 240
. /suite/guest/nfs3d-locks.sh

# locks FD, or is_locked FD: gets an exclusive lock without waiting, or not
locks() {
  local code=0
  timeout 60 flock --nonblock --exclusive "$1" || code=$?
  [ $code -le 1 ] || fail "flock ended with code $code"
  [ $code -eq 0 ]
}
is_locked() { ! locks "$1"; }

clients_up

log "two clients lock a file"
exec 8>>"$A/file" 9>>"$B/file"
# At the end, the files must be closed while the server is running.
ended_with_files() {
  local code=$?
  trap - ERR
  set +e
  exec 8>&- 9>&-
  "${ON_OTHER[@]}" umount -f "$SCRATCH/b"
  (exit "$code")
  ended
}
trap ended_with_files EXIT
try 30 flock --exclusive 8
is_locked 9 || fail "both have an exclusive lock"
try 30 flock --shared 8
try 30 flock --shared 9
is_locked 8 || fail "a lock became exclusive while another was shared"
flock --unlock 9
locks 8 || fail "a lock was not released"

log "two clients use a database, which locks ranges of bytes"
sqlite3 "$A/db" 'create table t (n)'
mkfifo "$SCRATCH/sql"
exec 7<>"$SCRATCH/sql"
start writer bash -c 'exec sqlite3 -cmd ".timeout 20000" "$1" <"$2"' writer "$A/db" "$SCRATCH/sql"
echo 'begin exclusive; insert into t values (1);' >&7
# sqlite3 resolves symbolic links in the path, so it must run on the second client.
OTHER_SQL=("${ON_OTHER[@]}" sqlite3) OTHER_DB=$SCRATCH/b/db
is_busy() { ! "${OTHER_SQL[@]}" "$OTHER_DB" 'select * from t' 2>/dev/null; }
eventually 20 is_busy || fail "the first client does not lock the database: $(last_words writer)"
refuse 20 'database is locked' "${OTHER_SQL[@]}" "$OTHER_DB" 'insert into t values (2)'
printf '%s\n' 'commit;' .quit >&7
finish writer 20
exec 7>&-
inserts() { # inserts DATABASE COMMAND..: inserts 20 rows, each in a transaction of its own
  local n
  for n in {1..20}; do "${@:2}" -cmd '.timeout 60000' "$1" 'insert into t select max(n) + 1 from t'; done
}
start first inserts "$A/db" sqlite3
start second inserts "$OTHER_DB" "${OTHER_SQL[@]}"
finish first 90
finish second 90
is_whole() { # is_whole DATABASE COMMAND..
  [ "$("${@:2}" "$1" 'select count(*), max(n) from t; pragma integrity_check')" = $'41|41\nok' ]
}
is_whole "$A/db" sqlite3 || fail "transactions were lost, as the first client sees it"
is_whole "$OTHER_DB" "${OTHER_SQL[@]}" || fail "transactions were lost, as the second client sees it"
rm "$A/db"

log "a lock that was waited for is granted by a call"
start waiter flock --exclusive 9
eventually 20 logged 'outcome=Blocked' || fail "the second client does not wait"
flock --unlock 8
finish waiter 25
logged 'called NLMPROC4_GRANTED.*status=Granted' || fail "the server did not call the client"
is_locked 8 || fail "the client does not have the lock that it waited for"

log "a process that waits is killed"
start waiter timeout 3 flock --exclusive 8
eventually 10 ended_process "${PID[waiter]}" || fail "a process that waits for a lock cannot be killed"
flock --unlock 9
locks 9 || fail "a process that was killed has got the lock"

log "the server is killed and restarted"
kill -9 "${PID[nfs3d-locks]}"
locks_up 8>&- 9>&-
eventually 30 logged 'notified a client of the restart' || fail "the client was not notified: $(last_words nfs3d-locks)"
is_locked 8 || fail "the client did not reclaim its lock"
flock --unlock 9
locks 8 || fail "a lock that was reclaimed was not released"

log "the client says that it has restarted"
try 60 sm-notify -f -d
eventually 20 logged 'a client has restarted.*released=1' || fail "the server did not release the locks of the client"
locks 9 || fail "a lock is held for a client that has restarted"
flock --unlock 9
flock --unlock 8
exec 8>&- 9>&-

log "access control lists"
chmod 755 "$SCRATCH"
try 20 chmod 640 "$A/file"
try 20 setfacl --modify user:1000:rw "$A/file"
getfacl --omit-header "$EXPORT/file" | grep -qx 'user:user:rw-' || fail "the list did not reach the server"
getfacl --omit-header "$B/file" | grep -qx 'user:user:rw-' || fail "the other client does not see the list"
setpriv --reuid=1000 --regid=1000 --clear-groups bash -c "echo more >>'$A/file'" || fail "the list has no effect"
if setpriv --reuid=1001 --regid=1001 --clear-groups cat "$A/file" 2>/dev/null; then fail "others can read the file"; fi
mkdir "$A/folder"
try 20 setfacl --default --modify user:1000:rwX "$A/folder"
echo new >"$A/folder/file"
getfacl --omit-header "$EXPORT/folder/file" | grep -q '^user:user:rw' || fail "the list of the folder was not inherited"
try 20 setfacl --remove-all --remove-default "$A/folder" "$A/file"
[ "$(getfacl --omit-header --skip-base "$EXPORT/folder" "$EXPORT/file")" = "" ] || fail "the lists were not removed"

log "a host with Linux's lock manager"
refuse 30 'another (lock manager|status monitor)' "$BIN/nfs3d" --root "$EXPORT" --state "$SCRATCH/state" \
  --listen "tcp://$CLIENT:2049" --mount "tcp://$CLIENT:20048" --locks "tcp://$CLIENT:20051" --rpcbind

clients_down
