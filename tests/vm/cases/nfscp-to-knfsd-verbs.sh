# about: nfscp over verbs with Linux's NFS server: files and a tree in both directions, 8 calls in flight, Send with Invalidate
# fabric: rxe siw
# programs: nfscp
# timeout: 120
. /suite/guest/nfscp-knfsd.sh
knfsd_up
nfscp_knfsd nfs3+rdma
invalidated=$(sed -n 's/^ *"remote_invalidations": \([0-9]*\),*$/\1/p' <<<"$COUNTERS")
log "the server invalidated $invalidated handles"
# siw does not report a Send with Invalidate to its receiver, so the client must not ask for it there.
case $FABRIC in
  rxe) [ "$invalidated" -gt 0 ] || fail "the server sent no Send with Invalidate" ;;
  siw) [ "$invalidated" -eq 0 ] || fail "siw cannot have reported $invalidated invalidations" ;;
esac
