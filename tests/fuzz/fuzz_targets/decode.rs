//! The decoder of captures, messages and hexadecimal text. Decoding of arbitrary bytes ends, and each decoded message
//! can be printed as text and as JSON.
#![no_main]

use std::sync::LazyLock;

use rpcrdma_xdrgen::{
    Compiler,
    decode::{Decoded, Decoder, MessageFormat, is_capture, parse_hex},
};

const SPECIFICATION: &str = "enum status { OK = 0, NO_FILE = 2 };
struct read_args { string name<32>; unsigned hyper offset; unsigned int count; };
struct read_ok { bool eof; @ddp(max = count) opaque data<65536>; };
union read_res switch (status status) { case OK: read_ok ok; default: void; };
struct write_args { string name<32>; @ddp opaque data<65536>; };
struct tree { double value; tree *left; tree *right; };
program FILES {
    version FILES_V1 {
        read_res READ(read_args) = 1;
        status WRITE(write_args) = 2;
        int TREE(tree) = 3;
    } = 1;
} = 0x20000001;
";

static DECODER: LazyLock<Decoder> = LazyLock::new(|| {
    let compiled = Compiler::new().source("files.x", SPECIFICATION).compile().expect("the specification is valid");
    Decoder::new(compiled.spec)
});

fn print(decoded: &Decoded<'_>) {
    for message in decoded.iter() {
        assert!(message.to_text(decoded.start(), 16).ends_with('\n'));
        assert!(message.to_json().starts_with('{'));
    }
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if is_capture(input) {
        return print(&DECODER.capture(input));
    }
    let formats = [MessageFormat::Rpc, MessageFormat::Tcp, MessageFormat::Rdma, MessageFormat::Iwarp, MessageFormat::Roce];
    let [format, message @ ..] = input else { return };
    let format = formats.get(usize::from(*format)).copied().unwrap_or_default();
    print(&DECODER.messages([message.to_vec()], format));
    let _ = std::str::from_utf8(input).map(parse_hex);
});
