# about: nfscp over verbs with Linux's NFS server and Kerberos: files of up to 64 MiB with krb5, krb5i, krb5p
# fabric: rxe@trixie-backports siw@trixie-backports
# alternate: yes
# programs: nfscp
# timeout: 420
# Linux 6.1's server answers every NFS 3 call with krb5p with GARBAGE_ARGS, calls of its own client included. Linux 6.12's does not.
. /suite/guest/nfscp-knfsd.sh
. /suite/guest/krb5.sh
realm_up
svcgssd_up
KNFSD_OPTIONS=sec=krb5:krb5i:krb5p knfsd_up
nfscp_knfsd_krb5 "nfs3+rdma://$NAMED:20049"
