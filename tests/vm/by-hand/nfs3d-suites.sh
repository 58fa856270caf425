# about: pjdfstest, cthon04 without locks, fsx and fsstress by Linux's NFS 3 client: nothing may fail on nfs3d that passes on Linux's server
# fabric: rxe siw
# programs: nfs3d suites
# timeout: 7200
. /suite/guest/nfs3d.sh
. /suite/guest/suites.sh
suites_up
knfsd_up
nfs_mount 3 "$SCRATCH/linux"
nfs3d_up main "rdma://$ADDR:20100" 20101 --no-root-squash
nfs3d_mount "$SCRATCH/nfs3d" 20100 20101
chmod 755 "$SCRATCH"
all_suites() { # all_suites SERVER
  local suite
  for suite in connectathon random_operations pjdfstest; do
    mkdir "$SCRATCH/$1/$suite"
    chmod 777 "$SCRATCH/$1/$suite"
    $suite "$SCRATCH/$1/$suite" "/out/$CASE.$1"
    log "$1: $suite done"
  done
}
rm -f "/out/$CASE".{linux,nfs3d}
for server in linux nfs3d; do start "suites-$server" all_suites $server; done
for server in linux nfs3d; do
  finish "suites-$server" 7000
  cp "$SCRATCH/suites-$server.out" "/out/$CASE.$server.log"
done
for server in linux nfs3d; do
  sort -u -o "/out/$CASE.$server" "/out/$CASE.$server"
  log "$server: $(grep -c ^ok "/out/$CASE.$server") passed, $(grep -c '^not ok' "/out/$CASE.$server" || true) failed"
done
# A test that passed on Linux's server must have passed, not only not failed.
worse=$(comm -23 <(grep ^ok "/out/$CASE.linux") <(grep ^ok "/out/$CASE.nfs3d"))
log "only on Linux's server: ${worse:-nothing}"
log "only on nfs3d: $(comm -13 <(grep ^ok "/out/$CASE.linux") <(grep ^ok "/out/$CASE.nfs3d"))"
[ -z "$worse" ] || fail "$(wc -l <<<"$worse") tests pass on Linux's server and fail on nfs3d"
try 30 umount "$SCRATCH/linux" "$SCRATCH/nfs3d"
nfs3d_down main
