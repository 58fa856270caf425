//! Benchmark of the generated codec against a handwritten codec, the codecs of other crates, and rpcgen with libtirpc:
//! `cargo bench --manifest-path tests/peers/Cargo.toml`.
//!
//! `--quick` measures for a shorter time. `--instructions [MESSAGE]` counts instructions and allocations with valgrind.
//! `--test` measures nothing: it compares the encoded messages, and runs each operation once.
//! `--profile MESSAGE ARM WAY TIMES` repeats one operation TIMES times for a profiler. ARM is the name of a codec, and
//! WAY is `encode` or `decode`.

mod by_hand;
#[cfg(libtirpc)]
mod c;
mod harness;
mod messages;
mod onc;
mod rust_xdr;
mod stellar;
#[allow(clippy::all, unused_imports)]
mod fast {
    include!(concat!(env!("OUT_DIR"), "/fastxdr.rs"));
    pub use xdr::*;
}

use std::{env, hint::black_box};

use harness::{Arm, Effort, Message, Way};
use rpcrdma::xdr::{Bytes, Decoder, FlatSink, ReducingSink, WriteChunk, XdrDecode, XdrDecodeRef, XdrEncode};
use rpcrdma_specs::nfs3;
use stellar_xdr::{Limited, Limits, ReadXdr, WriteXdr};

const MIB: usize = 1 << 20;
const MESSAGES: [(Message, &str); 3] =
    [(Message::Getattr, "getattr"), (Message::Readdirplus, "readdirplus"), (Message::Read, "read")];
const WAYS: [(Way, &str); 2] = [(Way::Encode, "encode"), (Way::Decode, "decode")];

fn attributes(fileid: u64) -> by_hand::Attributes {
    let time = |seconds| by_hand::Time { seconds, nseconds: 999_999_999 };
    by_hand::Attributes {
        kind: by_hand::Kind::Regular,
        mode: 0o644,
        links: 1,
        uid: 1000,
        gid: 100,
        size: 123_456,
        used: 126_976,
        device: [0, 0],
        fsid: 0x0102_0304_0506_0708,
        fileid,
        atime: time(1_700_000_000),
        mtime: time(1_600_000_000),
        ctime: time(1_600_000_001),
    }
}

/// Encodes a message with the handwritten codec.
fn bytes(message: Message) -> &'static [u8] {
    let mut out = Vec::new();
    match message {
        Message::Getattr => by_hand::encode_getattr(&mut out, &by_hand::Reply::Ok(attributes(42))),
        Message::Readdirplus => {
            let names: Vec<String> = (0..100).map(|n| format!("a-file-of-some-name-{n:04}.txt")).collect();
            let entry = |(name, n): (&'static [u8], u64)| by_hand::Entry {
                fileid: n,
                name,
                cookie: n + 3,
                attributes: Some(attributes(n)),
                handle: Some(&[7; 28]),
            };
            let names = names.leak().iter().map(|name| name.as_bytes()).zip(100..);
            let page = by_hand::Readdirplus {
                attributes: Some(attributes(1)),
                verifier: [1, 2, 3, 4, 5, 6, 7, 8],
                entries: names.map(entry).collect(),
                eof: true,
            };
            by_hand::encode_readdirplus(&mut out, &by_hand::Reply::Ok(page)).expect("within bounds");
        }
        Message::Read => {
            let data = vec![0x5a; MIB];
            let read = by_hand::Read { attributes: Some(attributes(42)), count: MIB as u32, eof: false, data: &data };
            by_hand::encode_read(&mut out, &by_hand::Reply::Ok(read)).expect("within bounds");
        }
    }
    out.leak()
}

fn decoded<T: XdrDecode>(mut decoder: Decoder<'_>) -> T {
    let value = decoder.read().expect("encoded message does not decode");
    decoder.finish().expect("bytes left over");
    value
}

/// Returns the arm of rpcrdma with owned types. Large items share the memory of the message.
fn owned<T: XdrEncode + XdrDecode + 'static>(bytes: &'static [u8]) -> Arm {
    let message = Bytes::from_static(bytes);
    let value: T = decoded(Decoder::new(bytes));
    Arm::new("rpcrdma").decode(move || decoded::<T>(Decoder::shared(black_box(&message)))).encode(bytes, move |out| {
        out.clear();
        black_box(&value).encode(&mut FlatSink::new(out)).expect("within bounds");
    })
}

/// Returns the arm of rpcrdma with borrowed types.
fn borrowed<T: XdrEncode + XdrDecodeRef<'static> + 'static>(bytes: &'static [u8]) -> Arm {
    let decode = move || {
        let mut decoder = Decoder::new(black_box(bytes));
        let value = T::decode_ref(&mut decoder).expect("encoded message does not decode");
        decoder.finish().expect("bytes left over");
        value
    };
    let value = decode();
    Arm::new("rpcrdma, borrowed").decode(decode).encode(bytes, move |out| {
        out.clear();
        black_box(&value).encode(&mut FlatSink::new(out)).expect("within bounds");
    })
}

/// Returns the arm of rpcrdma with direct data placement: the encoder removes the eligible item from the stream, and
/// the decoder inserts it by reference.
fn placed(bytes: &'static [u8]) -> Arm {
    let value: nfs3::Read3res = decoded(Decoder::new(bytes));
    let mut stream = Vec::new();
    let mut sink = ReducingSink::for_reply(&mut stream, [true]);
    value.encode(&mut sink).expect("within bounds");
    let (reduced, _) = sink.finish();
    let writes: Vec<WriteChunk> =
        reduced.into_iter().map(|item| WriteChunk { data: item.data, provided: true }).collect();
    let spliced: nfs3::Read3res = decoded(Decoder::new(&stream).with_write_chunks(&writes));
    assert_eq!(spliced, value);
    let stream: &'static [u8] = stream.leak();
    Arm::new("rpcrdma, placed")
        .decode(move || decoded::<nfs3::Read3res>(Decoder::new(black_box(stream)).with_write_chunks(&writes)))
        .encode_apart(move |out| {
            out.clear();
            let mut sink = ReducingSink::for_reply(out, [true]);
            black_box(&value).encode(&mut sink).expect("within bounds");
            black_box(sink.finish());
        })
}

fn by_hand<T: 'static>(
    bytes: &'static [u8],
    decode: fn(&'static [u8]) -> Result<T, by_hand::Bad>,
    encode: impl Fn(&mut Vec<u8>, &T) + 'static,
) -> Arm {
    let value = decode(bytes).expect("encoded message does not decode");
    Arm::new("by hand, borrowed").decode(move || decode(black_box(bytes)).expect("encoded message does not decode")).encode(
        bytes,
        move |out| {
            out.clear();
            encode(out, black_box(&value));
        },
    )
}

fn nfs3_types<T: nfs3_types::xdr_codec::Pack + nfs3_types::xdr_codec::Unpack + 'static>(bytes: &'static [u8]) -> Arm {
    let decode = move || {
        let (value, read) = T::unpack(&mut black_box(bytes)).expect("encoded message does not decode");
        assert_eq!(read, bytes.len());
        value
    };
    let value = decode();
    Arm::new("nfs3_types").decode(decode).encode(bytes, move |out| {
        out.clear();
        black_box(&value).pack(out).expect("within bounds");
    })
}

fn onc<T: onc_xdr::Pack + onc_xdr::Unpack + 'static>(bytes: &'static [u8]) -> Arm {
    let decode = move || {
        let (value, read) = T::unpack(&mut black_box(bytes)).expect("encoded message does not decode");
        assert_eq!(read, bytes.len());
        value
    };
    let value = decode();
    Arm::new("onc-xdr").decode(decode).encode(bytes, move |out| {
        out.clear();
        black_box(&value).pack(out).expect("within bounds");
    })
}

fn rust_xdr<T: xdr_codec::Pack<Vec<u8>> + xdr_codec::Unpack<&'static [u8]> + 'static>(bytes: &'static [u8]) -> Arm {
    let decode = move || {
        let (value, read) = T::unpack(&mut black_box(bytes)).expect("encoded message does not decode");
        assert_eq!(read, bytes.len());
        value
    };
    let value = decode();
    Arm::new("xdr-codec").decode(decode).encode(bytes, move |out| {
        out.clear();
        black_box(&value).pack(out).expect("within bounds");
    })
}

fn stellar<T: ReadXdr + WriteXdr + 'static>(bytes: &'static [u8]) -> Arm {
    let decode = move || {
        let mut input = Limited::new(black_box(bytes), Limits::none());
        let value = T::read_xdr(&mut input).expect("encoded message does not decode");
        assert!(input.inner.is_empty());
        value
    };
    let value = decode();
    Arm::new("stellar-xdr").decode(decode).encode(bytes, move |out| {
        out.clear();
        black_box(&value).write_xdr(&mut Limited::new(out, Limits::none())).expect("within bounds");
    })
}

/// Returns the arm of fastxdr, which only decodes. `right` checks that the end of the message was decoded correctly.
fn fastxdr<T: TryFrom<bytes05::Bytes, Error = fast::Error> + 'static>(
    bytes: &'static [u8],
    right: impl Fn(&T) -> bool,
) -> Arm {
    let message = bytes05::Bytes::from_static(bytes);
    let decode = move || T::try_from(black_box(&message).clone()).expect("encoded message does not decode");
    assert!(right(&decode()), "fastxdr: decodes another value");
    Arm::new("fastxdr").decode(decode)
}

fn fastxdr_readdirplus(bytes: &'static [u8]) -> Arm {
    fastxdr(bytes, |value: &fast::READDIRPLUS3res<bytes05::Bytes>| {
        let fast::READDIRPLUS3res::v_0(page) = value else { return false };
        let mut entry = page.reply.entries.as_deref();
        let mut names = 0;
        while let Some(this) = entry {
            names += usize::from(this.name.starts_with(b"a-file-of-some-name-"));
            entry = this.nextentry.as_deref();
        }
        names == 100 && page.reply.eof == 1
    })
}

fn arms(message: Message) -> Vec<Arm> {
    let bytes = bytes(message);
    let mut arms = match message {
        Message::Getattr => vec![
            by_hand(bytes, by_hand::decode_getattr, by_hand::encode_getattr),
            owned::<nfs3::Getattr3res>(bytes),
            nfs3_types::<nfs3_types::nfs3::GETATTR3res>(bytes),
            onc::<onc::Reply<onc::Getattr>>(bytes),
            rust_xdr::<rust_xdr::Reply<rust_xdr::Getattr>>(bytes),
            stellar::<stellar::Reply<stellar::Getattr>>(bytes),
            fastxdr(
                bytes,
                |value: &fast::GETATTR3res| matches!(value, fast::GETATTR3res::v_0(ok) if ok.obj_attributes.ctime.nseconds == 999_999_999),
            ),
        ],
        Message::Readdirplus => vec![
            by_hand(bytes, by_hand::decode_readdirplus, |out, value| {
                by_hand::encode_readdirplus(out, value).expect("within bounds");
            }),
            owned::<nfs3::Readdirplus3res>(bytes),
            borrowed::<nfs3::Readdirplus3resRef<'_>>(bytes),
            nfs3_types::<nfs3_types::nfs3::READDIRPLUS3res<'static>>(bytes),
            onc::<onc::Reply<onc::Readdirplus>>(bytes),
            rust_xdr::<rust_xdr::Reply<rust_xdr::Readdirplus>>(bytes),
            stellar::<stellar::Reply<stellar::Readdirplus>>(bytes),
            fastxdr_readdirplus(bytes),
        ],
        Message::Read => vec![
            by_hand(bytes, by_hand::decode_read, |out, value| {
                by_hand::encode_read(out, value).expect("within bounds");
            }),
            owned::<nfs3::Read3res>(bytes),
            borrowed::<nfs3::Read3resRef<'_>>(bytes),
            placed(bytes),
            nfs3_types::<nfs3_types::nfs3::READ3res<'static>>(bytes),
            onc::<onc::Reply<onc::Read>>(bytes),
            rust_xdr::<rust_xdr::Reply<rust_xdr::Read>>(bytes),
            stellar::<stellar::Reply<stellar::Read>>(bytes),
            fastxdr(
                bytes,
                |value: &fast::READ3res<bytes05::Bytes>| matches!(value, fast::READ3res::v_0(read) if read.data.len() == MIB),
            ),
        ],
    };
    #[cfg(libtirpc)]
    arms.push(c::arm(message, bytes));
    arms
}

/// Runs one operation of one codec `times` times.
fn profile(message: &str, arm: &str, way: &str, times: u64) {
    let (message, _) = MESSAGES.into_iter().find(|(_, name)| *name == message).expect("unknown message");
    let (way, _) = WAYS.into_iter().find(|(_, name)| *name == way).expect("direction is not encode or decode");
    let mut arms = arms(message);
    let arm = arms.iter_mut().find(|a| a.name == arm).expect("unknown codec");
    arm.work(way).expect("codec does not support this direction")(times);
}

fn main() {
    let arguments: Vec<String> = env::args().collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    if let [_, flag, message, arm, way, times, ..] = arguments.as_slice()
        && flag == "--profile"
    {
        return profile(message, arm, way, times.parse().expect("TIMES is not a number"));
    }
    let effort = match has("--quick") {
        true => Effort { turn_us: 500, turns: 5 },
        false => Effort { turn_us: 4000, turns: 41 },
    };
    let only = arguments.iter().skip_while(|argument| *argument != "--instructions").nth(1);
    let chosen = |name: &str| !only.is_some_and(|only| MESSAGES.iter().any(|(_, known)| known == only) && only != name);
    for (message, name) in MESSAGES.into_iter().filter(|(_, name)| chosen(name)) {
        for (way, way_name) in WAYS {
            if has("--test") {
                // Creating a codec has compared its encoding. The time of a single operation means nothing.
                let mut arms = arms(message);
                let arms = arms.iter_mut().filter_map(|arm| arm.work(way).map(|work| work(1)));
                println!("{name}, {way_name}: {} arms", arms.count());
                continue;
            }
            if has("--instructions") {
                instructions(message, name, way, way_name);
                continue;
            }
            let times = harness::times(&mut arms(message), way, effort);
            println!("\n{name}, {way_name} | ns | of by hand\n--- | --- | ---");
            let (_, by_hand) = times[0];
            for (arm, ns) in times {
                println!("{arm} | {ns:.0} | {:.2}", ns / by_hand);
            }
        }
    }
}

fn instructions(message: Message, name: &str, way: Way, way_name: &str) {
    println!("\n{name}, {way_name} | instructions | of by hand | allocations\n--- | --- | --- | ---");
    let mut by_hand = None;
    for mut arm in arms(message) {
        if arm.work(way).is_none() {
            continue;
        }
        let Some((instructions, allocations)) = harness::counts(name, arm.name, way_name, 20, 60) else {
            println!("valgrind is not installed");
            return;
        };
        let by_hand = by_hand.get_or_insert(instructions);
        println!("{} | {instructions:.0} | {:.2} | {allocations:.1}", arm.name, instructions / *by_hand);
    }
}
