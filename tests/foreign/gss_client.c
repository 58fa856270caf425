/*
 * A client of nfs3d and blobstore on libtirpc, with its RPCSEC_GSS.
 *
 * usage: gss_client nfs SEC put FILE NAME    writes a file of the export /e
 *        gss_client nfs SEC get NAME FILE    reads one
 *        gss_client blobs SEC put FILE NAME DIGEST    stores a blob; the digest is in hexadecimal
 *        gss_client blobs SEC get NAME FILE  reads one
 *
 * SEC is sys, krb5, krb5i or krb5p. The services are nfs@localhost and host@localhost. MOUNT is on port 20048 of this host,
 * NFS on 2049, and blobstore on 20100.
 */
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rpc/rpc.h>
#include <rpc/auth_gss.h>
#include <rpc/clnt_soc.h>

/* Bytes of one READ, WRITE, GET or PUT. */
#define PIECE (128 * 1024)
/* libtirpc protects only calls that fit its buffer, whose size is at most this. */
#define BUFFER (256 * 1024)

struct bytes {
    char *data;
    u_int len;
};

struct arguments {
    struct bytes handle;
    char *name;
    uint64_t offset;
    struct bytes data;
    u_int count;
    char digest[32];
};

struct results {
    u_int status;
    struct bytes handle;
    struct bytes data;
    u_int count;
    bool_t eof;
};

static const struct timeval LIMIT = { 120, 0 };

static _Noreturn void fail(const char *what, const char *why)
{
    fprintf(stderr, "gss_client: %s: %s\n", what, why);
    exit(1);
}

/* ---- XDR of RFC 1813, as far as it is used ---- */

static bool_t xdr_data(XDR *xdrs, struct bytes *bytes, u_int max)
{
    return xdr_bytes(xdrs, &bytes->data, &bytes->len, max);
}

static bool_t xdr_handle(XDR *xdrs, struct bytes *handle) { return xdr_data(xdrs, handle, 64); }

/* An optional part of a result, of a fixed length, which is not used. */
static bool_t skip_optional(XDR *xdrs, u_int len)
{
    char unused[128];
    bool_t follows;
    return xdr_bool(xdrs, &follows) && (!follows || xdr_opaque(xdrs, unused, len));
}

static bool_t skip_attributes(XDR *xdrs) { return skip_optional(xdrs, 84); }
static bool_t skip_wcc_data(XDR *xdrs) { return skip_optional(xdrs, 24) && skip_attributes(xdrs); }

static bool_t xdr_words(XDR *xdrs, const u_int *words, int count)
{
    for (int i = 0; i < count; i++) {
        u_int word = words[i];
        if (!xdr_u_int(xdrs, &word))
            return FALSE;
    }
    return TRUE;
}

static bool_t xdr_name(XDR *xdrs, char **name) { return xdr_string(xdrs, name, 1024); }

static bool_t mount_arguments(XDR *xdrs, struct arguments *args) { return xdr_name(xdrs, &args->name); }

static bool_t mount_results(XDR *xdrs, struct results *results)
{
    return xdr_u_int(xdrs, &results->status) && (results->status != 0 || xdr_handle(xdrs, &results->handle));
}

static bool_t lookup_arguments(XDR *xdrs, struct arguments *args)
{
    return xdr_handle(xdrs, &args->handle) && xdr_name(xdrs, &args->name);
}

static bool_t lookup_results(XDR *xdrs, struct results *results)
{
    return xdr_u_int(xdrs, &results->status) && (results->status != 0 || xdr_handle(xdrs, &results->handle));
}

static bool_t create_arguments(XDR *xdrs, struct arguments *args)
{
    /* UNCHECKED, mode 0644, no user, no group, size 0, no times. */
    static const u_int how[] = { 0, 1, 0644, 0, 0, 1, 0, 0, 0, 0 };
    return lookup_arguments(xdrs, args) && xdr_words(xdrs, how, 10);
}

static bool_t create_results(XDR *xdrs, struct results *results)
{
    bool_t follows;
    if (!xdr_u_int(xdrs, &results->status))
        return FALSE;
    if (results->status != 0)
        return skip_wcc_data(xdrs);
    return xdr_bool(xdrs, &follows) && follows && xdr_handle(xdrs, &results->handle) && skip_attributes(xdrs) &&
           skip_wcc_data(xdrs);
}

static bool_t write_arguments(XDR *xdrs, struct arguments *args)
{
    static const u_int file_sync[] = { 2 };
    return xdr_handle(xdrs, &args->handle) && xdr_uint64_t(xdrs, &args->offset) && xdr_u_int(xdrs, &args->data.len) &&
           xdr_words(xdrs, file_sync, 1) && xdr_data(xdrs, &args->data, PIECE);
}

static bool_t write_results(XDR *xdrs, struct results *results)
{
    u_int committed;
    char verifier[8];
    if (!xdr_u_int(xdrs, &results->status) || !skip_wcc_data(xdrs))
        return FALSE;
    return results->status != 0 ||
           (xdr_u_int(xdrs, &results->count) && xdr_u_int(xdrs, &committed) && xdr_opaque(xdrs, verifier, 8));
}

static bool_t read_arguments(XDR *xdrs, struct arguments *args)
{
    return xdr_handle(xdrs, &args->handle) && xdr_uint64_t(xdrs, &args->offset) && xdr_u_int(xdrs, &args->count);
}

static bool_t read_results(XDR *xdrs, struct results *results)
{
    if (!xdr_u_int(xdrs, &results->status) || !skip_attributes(xdrs))
        return FALSE;
    return results->status != 0 ||
           (xdr_u_int(xdrs, &results->count) && xdr_bool(xdrs, &results->eof) && xdr_data(xdrs, &results->data, PIECE));
}

/* ---- XDR of blobstore.x ---- */

static bool_t put_arguments(XDR *xdrs, struct arguments *args)
{
    static const u_int no_attachment[] = { 0 };
    return xdr_name(xdrs, &args->name) && xdr_opaque(xdrs, args->digest, sizeof args->digest) &&
           xdr_words(xdrs, no_attachment, 1) && xdr_data(xdrs, &args->data, PIECE);
}

static bool_t put_results(XDR *xdrs, struct results *results)
{
    char stat[8 + 4 + 8 + 32];
    return xdr_u_int(xdrs, &results->status) && (results->status != 0 || xdr_opaque(xdrs, stat, sizeof stat));
}

static bool_t get_arguments(XDR *xdrs, struct arguments *args)
{
    static const u_int any_version[] = { 0, 0 };
    return xdr_name(xdrs, &args->name) && xdr_uint64_t(xdrs, &args->offset) && xdr_u_int(xdrs, &args->count) &&
           xdr_words(xdrs, any_version, 2);
}

static bool_t get_results(XDR *xdrs, struct results *results)
{
    return xdr_u_int(xdrs, &results->status) &&
           (results->status != 0 || (xdr_bool(xdrs, &results->eof) && xdr_data(xdrs, &results->data, PIECE)));
}

/* ---- calls ---- */

static CLIENT *connect_to(int port, u_long program, u_long version)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port) };
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int socket = RPC_ANYSOCK;
    CLIENT *client = clnttcp_create(&address, program, version, &socket, BUFFER, BUFFER);
    if (!client)
        fail("connect", clnt_spcreateerror(""));
    client->cl_auth = authunix_create_default();
    return client;
}

/* Makes the calls of a client secure, and sees that a NULL call works. */
static void secure(CLIENT *client, const char *sec, char *service)
{
    static gss_OID_desc kerberos = { 9, "\x2a\x86\x48\x86\xf7\x12\x01\x02\x02" };
    struct rpc_gss_sec wanted = { .mech = &kerberos, .qop = GSS_C_QOP_DEFAULT, .cred = GSS_C_NO_CREDENTIAL };
    if (strcmp(sec, "sys") != 0) {
        wanted.svc = strcmp(sec, "krb5") == 0    ? RPCSEC_GSS_SVC_NONE
                     : strcmp(sec, "krb5i") == 0 ? RPCSEC_GSS_SVC_INTEGRITY
                                                 : RPCSEC_GSS_SVC_PRIVACY;
        wanted.req_flags = GSS_C_MUTUAL_FLAG;
        AUTH *auth = authgss_create_default(client, service, &wanted);
        if (!auth)
            fail("security context", clnt_spcreateerror(""));
        auth_destroy(client->cl_auth);
        client->cl_auth = auth;
    }
    enum clnt_stat stat = clnt_call(client, 0, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_void, NULL, LIMIT);
    if (stat != RPC_SUCCESS)
        fail("NULL", clnt_sperror(client, ""));
}

/* Makes a call, which must succeed. The data of its results belongs to the caller. */
static void call(CLIENT *client, const char *what, u_long procedure, bool_t (*encode)(XDR *, struct arguments *),
                 struct arguments *args, bool_t (*decode)(XDR *, struct results *), struct results *results)
{
    memset(results, 0, sizeof *results);
    enum clnt_stat stat = clnt_call(client, procedure, (xdrproc_t)encode, (caddr_t)args, (xdrproc_t)decode,
                                    (caddr_t)results, LIMIT);
    if (stat != RPC_SUCCESS)
        fail(what, clnt_sperror(client, ""));
    if (results->status != 0) {
        char status[32];
        snprintf(status, sizeof status, "status %u", results->status);
        fail(what, status);
    }
}

static FILE *opened(const char *path, const char *mode)
{
    FILE *file = fopen(path, mode);
    if (!file)
        fail(path, "cannot be opened");
    return file;
}

static void close_file(FILE *file, const char *path)
{
    if (ferror(file) || fclose(file) != 0)
        fail(path, "cannot be read or written");
}

/* Reads pieces until the end. */
static void read_all(CLIENT *client, const char *what, u_long procedure, bool_t (*encode)(XDR *, struct arguments *),
                     struct arguments *args, bool_t (*decode)(XDR *, struct results *), const char *path)
{
    FILE *file = opened(path, "wb");
    struct results results;
    do {
        args->count = PIECE;
        call(client, what, procedure, encode, args, decode, &results);
        if (results.data.len == 0 && !results.eof)
            fail(what, "no data, but not the end");
        fwrite(results.data.data, 1, results.data.len, file);
        args->offset += results.data.len;
        free(results.data.data);
    } while (!results.eof);
    close_file(file, path);
}

static struct bytes root_handle(void)
{
    CLIENT *client = connect_to(20048, 100005, 3);
    struct arguments args = { .name = "/e" };
    struct results results;
    call(client, "MNT", 1, mount_arguments, &args, mount_results, &results);
    auth_destroy(client->cl_auth);
    clnt_destroy(client);
    return results.handle;
}

static CLIENT *nfs(const char *sec, bool is_put, char *from, char *to)
{
    static char piece[PIECE];
    struct arguments args = { .handle = root_handle(), .name = is_put ? to : from };
    struct results results;
    CLIENT *client = connect_to(2049, 100003, 3);
    secure(client, sec, "nfs@localhost");
    if (!is_put) {
        call(client, "LOOKUP", 3, lookup_arguments, &args, lookup_results, &results);
        args.handle = results.handle;
        read_all(client, "READ", 6, read_arguments, &args, read_results, to);
        return client;
    }
    FILE *file = opened(from, "rb");
    call(client, "CREATE", 8, create_arguments, &args, create_results, &results);
    args.handle = results.handle;
    while ((args.data.len = fread(piece, 1, PIECE, file)) > 0) {
        args.data.data = piece;
        call(client, "WRITE", 7, write_arguments, &args, write_results, &results);
        if (results.count != args.data.len)
            fail("WRITE", "was short");
        args.offset += args.data.len;
    }
    close_file(file, from);
    return client;
}

static CLIENT *blobs(const char *sec, bool is_put, char *from, char *to, const char *digest)
{
    struct arguments args = { .name = is_put ? to : from };
    struct results results;
    CLIENT *client = connect_to(20100, 0x20100B10, 1);
    secure(client, sec, "host@localhost");
    if (!is_put) {
        read_all(client, "GET", 7, get_arguments, &args, get_results, to);
        return client;
    }
    for (size_t i = 0; i < sizeof args.digest; i++) {
        unsigned byte;
        if (sscanf(digest + 2 * i, "%2x", &byte) != 1)
            fail(digest, "is not a digest");
        args.digest[i] = (char)byte;
    }
    FILE *file = opened(from, "rb");
    args.data.data = malloc(PIECE);
    if (!args.data.data)
        fail(from, "no memory");
    args.data.len = fread(args.data.data, 1, PIECE, file);
    close_file(file, from);
    call(client, "PUT", 2, put_arguments, &args, put_results, &results);
    return client;
}

int main(int count, char **args)
{
    CLIENT *client;
    bool is_nfs = count == 6 && strcmp(args[1], "nfs") == 0;
    bool is_put = count >= 6 && strcmp(args[3], "put") == 0;
    if (!is_nfs && count != (is_put ? 7 : 6))
        fail("arguments", "see the beginning of gss_client.c");
    client = is_nfs ? nfs(args[2], is_put, args[4], args[5])
                    : blobs(args[2], is_put, args[4], args[5], is_put ? args[6] : NULL);
    /* Sends RPCSEC_GSS_DESTROY. */
    auth_destroy(client->cl_auth);
    clnt_destroy(client);
    return 0;
}
