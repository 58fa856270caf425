//! The blobstore protocol as inline XDR.

rpcrdma::xdr! {
    /*
     * A store of blobs.
     */

    /* The maximum length of a name. */
    const MAX_NAME = 255;

    /* Names a blob. */
    typedef string blob_name<MAX_NAME>;

    enum blob_status {
        BLOB_OK = 0,     /* Success. */
        BLOB_NOENT = 2   /* There is no such blob. */
    };

    struct get_args {
        blob_name name;
        unsigned hyper offset;
        unsigned int count;   /* Maximum bytes. */
    };

    struct get_ok {
        bool eof;
        @ddp(max = args.count) opaque data<>;
    };

    /* The result of GET. */
    union get_res switch (blob_status status) {
    case BLOB_OK:
        get_ok ok;
    default:
        void;
    };

    struct put_args {
        blob_name name;
        @ddp opaque data<>;
    };

    @port(20100)
    program BLOBSTORE {
        version BLOBSTORE_V1 {
            void NULL(void) = 0;
            /* Reads a part of a blob. */
            @idempotent get_res GET(get_args) = 1;
            blob_status PUT(put_args) = 2;
        } = 1;
    } = 0x20000ABC;
}
