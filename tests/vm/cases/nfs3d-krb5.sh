# about: Linux's NFS 3 client with nfs3d over verbs, and Kerberos: krb5, krb5i, krb5p
# fabric: rxe siw
# alternate: yes
# programs: nfs3d
# timeout: 1200
. /suite/guest/nfs3d-krb5.sh
# rpc.gssd creates the contexts over TCP, whatever the transport of the mount.
nfs3d_krb5_up "rdma://$ADDR:20049" --listen "tcp://$ADDR:2049"
refused_sys rdma 20049
for sec in krb5 krb5i krb5p; do krb5_workload $sec rdma 20049; done
[ $EXTENT = short ] || krb5_permissions krb5 rdma 20049
nfs3d_down main
