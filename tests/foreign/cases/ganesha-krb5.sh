# about: nfscp copies files to nfs-ganesha and back with each flavor of Kerberos
# peer: nfs-ganesha
# from: trixie
# limit: 240
# tools: ip unshare krb5kdc kadmin.local kinit
. "$TOP/tests/foreign/lib.sh"
mount_root
start_realm
# The server sees the folder of the case under another name.
cp realm/krb5.conf krb5.conf
cp realm/keytab keytab
KRB5_CONFIG=/case/krb5.conf KRB5_KTNAME=FILE:/case/keytab start_ganesha MEM "krb5, krb5i, krb5p" \
  'NFS_KRB5 { Active_krb5 = true; PrincipalName = nfs; KeytabPath = /case/keytab; }'
make_files files 0 1 4095 65537 1048577 2000000
url=nfs3+tcp://127.0.0.1:2049/export
for sec in krb5 krb5i krb5p; do
  round_trip "$url" files --mount-port 20048 --service nfs@localhost --sec $sec
done
tree_round_trip "$url" --mount-port 20048 --service nfs@localhost --sec krb5p
refused 'krb5' nfscp --mount-port 20048 --sec sys files/1 "$url/"
kdestroy -q
refused 'run kinit' nfscp --mount-port 20048 --service nfs@localhost --sec krb5p files/1 "$url/"
