/* Prints the samples of ../samples/mod.rs, one per line: the name, and the bytes that libtirpc encodes, in hexadecimal. */
#include <stdio.h>
#include <string.h>
#include <rpc/rpc.h>
#ifdef RPCBIND
#include <rpc/pmap_prot.h>
#include <rpc/rpcb_prot.h>
#else
#include PROTOCOL /* the header that rpcgen generates from the specification */
#endif

static void print(const char *name, xdrproc_t proc, void *value) {
    static char bytes[65536];
    XDR xdrs;
    xdrmem_create(&xdrs, bytes, sizeof bytes, XDR_ENCODE);
    if (!proc(&xdrs, value)) {
        fprintf(stderr, "cannot encode %s\n", name);
        _Exit(1);
    }
    printf("%s ", name);
    for (unsigned i = 0; i < xdr_getpos(&xdrs); i++)
        printf("%02x", (unsigned char)bytes[i]);
    printf("\n");
}
#define PRINT(name, type, value) print(name, (xdrproc_t)xdr_##type, value)

static char handle[] = {'f', 'h', 0, 1, (char)0xff};
static char verifier[] = {0, 1, 2, 3, (char)0xfc, (char)0xfd, (char)0xfe, (char)0xff};

#ifdef NFS3
static nfs_fh3 fh(void) { return (nfs_fh3){.data = {sizeof handle, handle}}; }
static fattr3 attributes(void) {
    return (fattr3){NF3REG, 0644, 1, 1000, 100, 5, 4096, {8, 9}, 0x0102030405060708, 42, {1, 2}, {3, 4}, {5, 6}};
}
int main(void) {
    GETATTR3res getattr = {.status = NFS3_OK};
    getattr.GETATTR3res_u.resok.obj_attributes = attributes();
    PRINT("getattr_reply", GETATTR3res, &getattr);

    READ3args read_call = {fh(), 0x100000002, 12};
    PRINT("read_call", READ3args, &read_call);
    READ3res read = {.status = NFS3_OK};
    READ3resok *ok = &read.READ3res_u.resok;
    ok->file_attributes.attributes_follow = TRUE;
    ok->file_attributes.post_op_attr_u.attributes = attributes();
    ok->count = 5;
    ok->eof = TRUE;
    ok->data.data_len = 5;
    ok->data.data_val = "hello";
    PRINT("read_reply", READ3res, &read);

    WRITE3args write_call = {fh(), 7, 5, FILE_SYNC, {5, "hello"}};
    PRINT("write_call", WRITE3args, &write_call);
    WRITE3res write = {.status = NFS3_OK};
    WRITE3resok *written = &write.WRITE3res_u.resok;
    written->file_wcc.before.attributes_follow = TRUE;
    written->file_wcc.before.pre_op_attr_u.attributes = (wcc_attr){9, {3, 4}, {5, 6}};
    written->count = 5;
    written->committed = DATA_SYNC;
    memcpy(written->verf, verifier, sizeof verifier);
    PRINT("write_reply", WRITE3res, &write);

    READDIRPLUS3args list_call = {.dir = fh(), .cookie = 3, .dircount = 512, .maxcount = 4096};
    memcpy(list_call.cookieverf, verifier, sizeof verifier);
    PRINT("readdirplus_call", READDIRPLUS3args, &list_call);
    entryplus3 second = {.fileid = 43, .name = "motd", .cookie = 5};
    entryplus3 first = {.fileid = 42, .name = "hosts", .cookie = 4, .nextentry = &second};
    first.name_attributes.attributes_follow = TRUE;
    first.name_attributes.post_op_attr_u.attributes = attributes();
    first.name_handle.handle_follows = TRUE;
    first.name_handle.post_op_fh3_u.handle = fh();
    READDIRPLUS3res list = {.status = NFS3_OK};
    list.READDIRPLUS3res_u.resok.reply = (dirlistplus3){&first, TRUE};
    memcpy(list.READDIRPLUS3res_u.resok.cookieverf, verifier, sizeof verifier);
    PRINT("readdirplus_reply", READDIRPLUS3res, &list);
    return 0;
}
#endif

#ifdef NFS4
int main(void) {
    nfs_argop4 operations[] = {{.argop = OP_PUTFH}, {.argop = OP_LOOKUP}, {.argop = OP_READ}};
    operations[0].nfs_argop4_u.opputfh.object = (nfs_fh4){sizeof handle, handle};
    operations[1].nfs_argop4_u.oplookup.objname = (component4){4, "file"};
    READ4args *read = &operations[2].nfs_argop4_u.opread;
    *read = (READ4args){.stateid = {.seqid = 7}, .offset = 1, .count = 4096};
    for (int i = 0; i < NFS4_OTHER_SIZE; i++)
        read->stateid.other[i] = i;
    COMPOUND4args call = {{4, "test"}, 2, {3, operations}};
    PRINT("compound_call", COMPOUND4args, &call);

    nfs_resop4 results[] = {{.resop = OP_PUTFH}, {.resop = OP_LOOKUP}, {.resop = OP_READ}};
    READ4res *data = &results[2].nfs_resop4_u.opread;
    data->READ4res_u.resok4 = (READ4resok){TRUE, {5, "hello"}};
    COMPOUND4res reply = {NFS4_OK, {4, "test"}, {3, results}};
    PRINT("compound_reply", COMPOUND4res, &reply);
    return 0;
}
#endif

#ifdef MOUNT3
int main(void) {
    dirpath path = "/export";
    PRINT("mnt_call", dirpath, &path);
    int flavors[] = {1, 390003};
    mountres3 mnt = {.fhs_status = MNT3_OK};
    mnt.mountres3_u.mountinfo = (mountres3_ok){{sizeof handle, handle}, {2, flavors}};
    PRINT("mnt_reply", mountres3, &mnt);
    groupnode host = {"host", NULL}, a = {"a", &host};
    exportnode root = {"/", NULL, NULL}, exported = {"/export", &a, &root};
    exports list = &exported;
    PRINT("exports", exports, &list);
    return 0;
}
#endif

#ifdef RPCBIND
/* libtirpc provides these types and codecs. */
int main(void) {
    struct pmap call = {100003, 3, 6, 0};
    PRINT("getport_call", pmap, &call);
    struct pmaplist mapper = {{100000, 2, 17, 111}, NULL}, nfs = {{100003, 3, 6, 2049}, &mapper};
    struct pmaplist *list = &nfs;
    PRINT("portmap", pmaplist, &list);
    rpcb getaddr = {100003, 3, "rdma", "192.0.2.1.0.111", ""};
    PRINT("getaddr_call", rpcb, &getaddr);
    char *address = "192.0.2.1.78.81";
    PRINT("getaddr_reply", wrapstring, &address);
    return 0;
}
#endif
