# about: nfscp by verbs against Linux's NFS server: files and a tree there and back, 8 calls in flight, Send with Invalidate
# fabric: rxe siw
# programs: nfscp
# timeout: 120
. /suite/guest/nfscp-knfsd.sh
knfsd_up
nfscp_knfsd nfs3+rdma
invalidated=$(sed -n 's/^ *"remote_invalidations": \([0-9]*\),*$/\1/p' <<<"$COUNTERS")
log "$invalidated handles were invalidated by the server"
# siw does not tell who receives a Send with Invalidate, so there it must not be asked for.
case $FABRIC in
  rxe) [ "$invalidated" -gt 0 ] || fail "no Send with Invalidate of the server's was seen" ;;
  siw) [ "$invalidated" -eq 0 ] || fail "siw cannot have reported $invalidated invalidations" ;;
esac
