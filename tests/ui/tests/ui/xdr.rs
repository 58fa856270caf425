//! Invalid inline XDR: each error points to the offending tokens.

mod unresolved {
    rpcrdma::xdr! {
        struct point { int x; coordinate y; };
        typedef opaque handle<MAX_HANDLE>;
    }
}

mod syntax {
    rpcrdma::xdr! {
        struct point { int x int y; };
    }
}

mod union_is_never_eligible {
    rpcrdma::xdr! {
        union choice switch (bool yes) { case TRUE: int value; case FALSE: void; };
        struct args { @ddp choice which; };
        program P { version V { void F(args) = 1; } = 1; } = 0x20000000;
    }
}

mod eligible_result_without_maximum {
    rpcrdma::xdr! {
        struct result { @ddp opaque data<>; };
        program P { version V { result F(int) = 1; } = 1; } = 0x20000000;
    }
}

mod option {
    rpcrdma::xdr! {
        #![colour = "blue"]
        const A = 1;
    }
}

mod derive_for_none {
    rpcrdma::xdr! {
        #![derive(none = Ord)]
        const A = 1;
    }
}

fn main() {}
