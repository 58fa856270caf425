# about: NFS 4.1 callbacks of Linux's server, over verbs: CB_SEQUENCE and CB_RECALL on the client's connection
# fabric: rxe siw
# programs: nfs41cb
# timeout: 240
. /suite/guest/nfs41cb.sh
knfsd_up
nfs41cb_recall "rdma://$ADDR:20049"
