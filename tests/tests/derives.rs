//! User-selected derives of generated types, and user-defined types in place of generated ones.

use std::collections::HashSet;

use arbitrary::{Arbitrary, Unstructured};
use bytes::Bytes;
use rpcrdma::xdr::{self, Decoder, XdrDecode as _, XdrString};

/// The user-defined type for `stamp`.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Default,
    arbitrary::Arbitrary,
    serde::Serialize,
    serde::Deserialize,
    rpcrdma::XdrEncode,
    rpcrdma::XdrDecode,
)]
pub struct Seconds {
    seconds: u64,
}

mod derived {
    rpcrdma::xdr! {
        #![derive(arbitrary::Arbitrary, serde::Serialize, serde::Deserialize, Hash)]
        #![derive(label = PartialOrd, label = Ord, many = PartialOrd, many = Ord, digest = PartialOrd, digest = Ord, entry = Default)]
        // The compiler does not know the traits of user-defined types.
        #![derive(entry = Eq, body = Eq)]
        #![extern stamp = super::Seconds]

        typedef string label<16>;
        typedef unsigned hyper stamp;
        enum kind { PLAIN = 1, MARKED = 2 };
        struct node { int value; node *next; };
        struct entry {
            label name;
            stamp when;
            opaque id[8];
            @ddp opaque data<>;
            string notes<4>;
            bool *flag;
            node *list;
            quadruple wide;
        };
        typedef opaque digest[64];
        struct many {
            digest of;
            opaque block[4096];
            label labels[33];
            quadruple wide[3];
        };
        union body switch (kind of) {
        case PLAIN: opaque bytes<8>;
        case MARKED: entry entries<2>;
        };
    }
}
use derived::{Body, Entry, Label, Many};

fn sample() -> Body {
    let entry = Entry {
        name: Label::from("name"),
        when: Seconds { seconds: 7 },
        data: Bytes::from_static(b"data"),
        notes: XdrString::from("note"),
        ..Entry::default()
    };
    Body::Marked(vec![entry])
}

#[test]
fn serde_keeps_every_value() {
    let json = serde_json::to_string(&sample()).unwrap();
    assert!(json.contains("\"name\":\"name\"") && json.contains("\"when\":{\"seconds\":7}"), "{json}");
    assert_eq!(serde_json::from_str::<Body>(&json).unwrap(), sample());
    // Strings that are not UTF-8 keep their bytes.
    let bytes = XdrString(Bytes::from_static(&[0xFF, 0x00]));
    let json = serde_json::to_string(&bytes).unwrap();
    assert_eq!((json.as_str(), serde_json::from_str::<XdrString>(&json).unwrap()), ("[255,0]", bytes));
}

#[test]
fn arbitrary_values_encode() {
    let mut kinds = HashSet::new();
    for seed in 0..200_u8 {
        let bytes: Vec<u8> =
            (0..512_u32).map(|n| (n.wrapping_mul(37) ^ u32::from(seed).wrapping_mul(n)) as u8).collect();
        let value = Body::arbitrary(&mut Unstructured::new(&bytes)).unwrap();
        kinds.insert(value.discriminant());
        // Values that exceed their bounds do not encode; all others round-trip.
        if let Ok(encoded) = xdr::encode_to_bytes(&value) {
            assert_eq!(Body::decode(&mut Decoder::shared(&encoded)).unwrap(), value);
        }
    }
    assert_eq!(kinds.len(), 2);
}

#[test]
fn one_type_derives_more_than_others() {
    assert!(Label::from("a") < Label::from("b"));
    let all: HashSet<Body> = [sample(), sample()].into();
    assert_eq!(all.len(), 1);
}

#[test]
fn long_arrays_derive_what_short_ones_do() {
    let labels = std::array::from_fn(|index| Label(index.to_string().as_str().into()));
    let many = Many { of: [1; 64].into(), block: [2; 4096], labels, wide: [xdr::Quadruple([3; 16]); 3] };
    let json = serde_json::to_string(&many).unwrap();
    assert_eq!(serde_json::from_str::<Many>(&json).unwrap(), many);
    let short = json.replacen("\"0\",", "", 1);
    let error = serde_json::from_str::<Many>(&short).unwrap_err().to_string();
    assert!(error.contains("invalid length 32, expected an array of 33 elements"), "{error}");
    assert!(many < Many { block: [3; 4096], ..many.clone() });
}
