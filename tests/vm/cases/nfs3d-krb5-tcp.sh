# about: Linux's NFS 3 client with nfs3d over TCP, and Kerberos: krb5, krb5i, krb5p
# fabric: siw
# programs: nfs3d
# timeout: 1200
. /suite/guest/nfs3d-krb5.sh
nfs3d_krb5_up "tcp://$ADDR:2049"
refused_sys tcp 2049
for sec in krb5 krb5i krb5p; do krb5_workload $sec tcp 2049; done
[ $EXTENT = short ] || krb5_permissions krb5p tcp 2049
nfs3d_down main
