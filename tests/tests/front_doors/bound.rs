//! A specification without annotations, with a separate binding.

/// The specification, included from an XDR file.
pub(crate) mod included {
    rpcrdma::include_xdr!("tests/front_doors/plain.x", ulb = "tests/front_doors/plain.ulb");
}

/// The specification as inline XDR.
pub(crate) mod inline {
    rpcrdma::xdr! {
        #![ulb = "tests/front_doors/plain.ulb"]

        const PLAIN_MAX = 64;

        struct plain_ok {
            opaque label<PLAIN_MAX>;
            opaque data<>;
        };

        program PLAIN {
            version PLAIN_V1 {
                plain_ok GET(unsigned int) = 1;
            } = 1;
        } = 0x20000ABD;
    }
}
