/* Reads lines with a type name and bytes in hexadecimal. Decodes and re-encodes them with rpcgen's codecs, and prints the
 * resulting bytes or an error. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include PROTOCOL

static const struct {
    const char *name;
    size_t size;
    xdrproc_t codec;
} types[] = {
#define TYPE(name) {#name, sizeof(name), (xdrproc_t)xdr_##name},
#include TYPES
};

static const char *transcode(const char *name, char *bytes, unsigned count, char *out, unsigned *written) {
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (strcmp(types[i].name, name) != 0)
            continue;
        XDR in, back;
        char *value = calloc(1, types[i].size);
        const char *wrong = NULL;
        xdrmem_create(&in, bytes, count, XDR_DECODE);
        xdrmem_create(&back, out, 1 << 20, XDR_ENCODE);
        if (!types[i].codec(&in, value))
            wrong = "not decoded";
        else if (xdr_getpos(&in) != count)
            wrong = "bytes left over";
        else if (!types[i].codec(&back, value))
            wrong = "not encoded";
        *written = xdr_getpos(&back);
        xdr_free(types[i].codec, value);
        free(value);
        return wrong;
    }
    return "no such type";
}

int main(void) {
    static char name[256], hex[1 << 20], bytes[1 << 19], out[1 << 20];
    while (scanf("%255s %1048575s", name, hex) == 2) {
        unsigned count = 0, written = 0;
        /* The first character is a marker, so that an empty encoding is not an empty field. */
        for (const char *at = hex + 1; at[0] && at[1]; at += 2) {
            unsigned byte;
            sscanf(at, "%2x", &byte);
            bytes[count++] = (char)byte;
        }
        const char *wrong = transcode(name, bytes, count, out, &written);
        if (wrong) {
            printf("%s", wrong);
        } else {
            for (unsigned i = 0; i < written; i++)
                printf("%02x", (unsigned char)out[i]);
        }
        printf("\n");
        fflush(stdout);
    }
    return 0;
}
