/* Codecs of the three messages: rpcgen's code with libtirpc's memory streams. */
#include <stdlib.h>
#include <string.h>
#include <rpc/rpc.h>
#include "nfs3.h"

typedef union {
    GETATTR3res getattr;
    READDIRPLUS3res readdirplus;
    READ3res read;
} message;

static const xdrproc_t procs[] = {
    (xdrproc_t)xdr_GETATTR3res,
    (xdrproc_t)xdr_READDIRPLUS3res,
    (xdrproc_t)xdr_READ3res,
};

/* Decodes a message and frees the value. Returns 1 on success. */
int peer_decode(unsigned which, char *bytes, unsigned len) {
    message value;
    XDR xdrs;
    memset(&value, 0, sizeof value);
    xdrmem_create(&xdrs, bytes, len, XDR_DECODE);
    int done = procs[which](&xdrs, &value);
    xdr_free(procs[which], &value);
    return done;
}

/* Returns a decoded message to encode, which is never freed, or NULL. */
void *peer_value(unsigned which, char *bytes, unsigned len) {
    XDR xdrs;
    message *value = calloc(1, sizeof *value);
    xdrmem_create(&xdrs, bytes, len, XDR_DECODE);
    return value != NULL && procs[which](&xdrs, value) ? value : NULL;
}

/* Returns the number of bytes written, or zero if there is no room. */
unsigned peer_encode(unsigned which, void *value, char *out, unsigned capacity) {
    XDR xdrs;
    xdrmem_create(&xdrs, out, capacity, XDR_ENCODE);
    return procs[which](&xdrs, value) ? xdr_getpos(&xdrs) : 0;
}
