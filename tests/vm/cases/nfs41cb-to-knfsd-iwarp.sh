# about: NFS 4.1 callbacks of Linux's server, over userspace iWARP with siw: CB_SEQUENCE and CB_RECALL on the client's connection
# fabric: siw
# programs: nfs41cb
# timeout: 240
. /suite/guest/nfs41cb.sh
knfsd_up
nfs41cb_recall "iwarp://$ADDR:20049"
