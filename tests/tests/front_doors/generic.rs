//! The derives on all kinds of types and fields.

use rpcrdma::{
    XdrDecode, XdrEncode,
    xdr::{
        Bytes, DecodeError, DecodeErrorKind, Decoder, EncodeError, XdrDecode as Decode, XdrEncode as Encode, XdrString,
        encode_to_bytes,
    },
};

type Alias = XdrString;

#[derive(Debug, Clone, PartialEq, XdrEncode, XdrDecode)]
struct Everything {
    flag: bool,
    signed: i64,
    float: f64,
    fixed: [u8; 5],
    #[xdr(max = 4)]
    opaque: Bytes,
    #[xdr(len = 3)]
    exact: Bytes,
    #[xdr(max = 10)]
    text: String,
    #[xdr(string, max = 3)]
    alias: Alias,
    bytes: Vec<u8>,
    #[xdr(max = 2)]
    numbers: Vec<u32>,
    #[xdr(len = 2)]
    pair: Vec<u32>,
    array: [i32; 2],
    maybe: Option<u32>,
    #[xdr(list)]
    list: Vec<Point>,
    boxed: Box<u32>,
    r#type: Unit,
}

#[derive(Debug, Clone, PartialEq, XdrEncode, XdrDecode)]
struct Point(i32, i32);

#[derive(Debug, Clone, PartialEq, XdrEncode, XdrDecode)]
struct Unit;

#[derive(Debug, Clone, PartialEq, XdrEncode, XdrDecode)]
struct Page<T>
where
    T: Clone,
{
    #[xdr(max = 3)]
    items: Vec<T>,
    last: T,
}

#[derive(Debug, Clone, PartialEq, XdrEncode, XdrDecode)]
enum Shape {
    #[xdr(case = 0)]
    Nothing,
    #[xdr(case = -1)]
    Circle { centre: Point, radius: f32 },
    #[xdr(case = 2)]
    Line(Point, Point),
    #[xdr(default)]
    Other(i32, #[xdr(max = 8)] Bytes),
}

#[derive(Debug, Clone, PartialEq, XdrEncode, XdrDecode)]
#[xdr(discriminant = bool)]
enum Maybe {
    #[xdr(case = true)]
    Yes(u32),
    #[xdr(case = false)]
    No,
}

/// A union with opaque arms. A length precedes each arm, except the arm of `Bytes`, because the encoding of `Bytes`
/// already starts with a length.
#[derive(Debug, Clone, PartialEq, XdrEncode, XdrDecode)]
#[xdr(opaque_union)]
enum OpaqueArms {
    #[xdr(case = 0)]
    Nothing,
    #[xdr(case = 1)]
    Point(Point),
    #[xdr(case = 2)]
    Own(#[xdr(max = 8)] Bytes),
    #[xdr(case = 3)]
    Inner { inner: Option<Box<OpaqueArms>> },
    #[xdr(default)]
    Other(i32, String),
}

const NINE: u32 = 9;

#[derive(Debug, Clone, PartialEq, XdrEncode, XdrDecode)]
#[xdr(discriminant = u32)]
enum Unsigned {
    #[xdr(case = NINE)]
    Nine(u32),
    #[xdr(case = 4_000_000_000)]
    Large,
}

#[derive(Debug, Clone, PartialEq, XdrEncode, XdrDecode)]
struct Tree {
    value: i32,
    left: Option<Box<Tree>>,
    right: Option<Box<Tree>>,
}

#[derive(Debug, Clone, PartialEq, XdrEncode, XdrDecode)]
struct Placed {
    #[xdr(ddp)]
    points: Vec<Point>,
    #[xdr(ddp)]
    point: Point,
    #[xdr(ddp)]
    fixed: [u8; 6],
    #[xdr(ddp)]
    corners: [Point; 2],
    #[xdr(ddp, len = 7)]
    exact: Bytes,
}

#[track_caller]
fn wire<T: Encode + Decode + PartialEq + std::fmt::Debug>(value: &T, words: &[u32]) {
    let expected: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    let bytes = encode_to_bytes(value).unwrap();
    assert_eq!(bytes, expected);
    assert_eq!(value.encoded_len(), bytes.len());
    assert_eq!(read::<T>(&bytes).unwrap(), *value);
}

fn read<T: Decode>(bytes: &Bytes) -> Result<T, DecodeError> {
    let mut decoder = Decoder::new(bytes);
    let value = T::decode(&mut decoder)?;
    decoder.finish()?;
    Ok(value)
}

fn everything() -> Everything {
    Everything {
        flag: true,
        signed: -1,
        float: 1.0,
        fixed: *b"12345",
        opaque: Bytes::from_static(b"ab"),
        exact: Bytes::from_static(b"abc"),
        text: "é".to_owned(),
        alias: "x".into(),
        bytes: vec![1, 2, 3],
        numbers: vec![7],
        pair: vec![8, 9],
        array: [-1, 1],
        maybe: Some(5),
        list: vec![Point(1, 2)],
        boxed: Box::new(6),
        r#type: Unit,
    }
}

#[test]
fn structs() {
    wire(
        &everything(),
        &[
            1,
            0xffff_ffff,
            0xffff_ffff,
            0x3ff0_0000,
            0,
            0x3132_3334,
            0x3500_0000,
            2,
            0x6162_0000,
            0x6162_6300,
            2,
            0xc3a9_0000,
            1,
            0x7800_0000,
            3,
            0x0102_0300,
            1,
            7,
            8,
            9,
            0xffff_ffff,
            1,
            1,
            5,
            1,
            1,
            2,
            0,
            6,
        ],
    );
    wire(&Page { items: vec![Point(1, 2)], last: Point(3, 4) }, &[1, 1, 2, 3, 4]);
}

#[test]
fn opaque_unions() {
    wire(&OpaqueArms::Nothing, &[0, 0]);
    wire(&OpaqueArms::Point(Point(1, 2)), &[1, 8, 1, 2]);
    wire(&OpaqueArms::Own(Bytes::from_static(b"abc")), &[2, 3, 0x6162_6300]);
    wire(&OpaqueArms::Inner { inner: Some(Box::new(OpaqueArms::Nothing)) }, &[3, 12, 1, 0, 0]);
    wire(&OpaqueArms::Other(7, "a".to_owned()), &[7, 8, 1, 0x6100_0000]);
    let error = read::<OpaqueArms>(&Bytes::from_static(&[0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 2])).unwrap_err();
    assert!(matches!(error.kind(), DecodeErrorKind::Truncated { needed: 4, remaining: 0 }), "{error}");
    let error = read::<OpaqueArms>(&Bytes::from_static(&[0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 1])).unwrap_err();
    assert_eq!(error.to_string(), "OpaqueArms.void: 4 bytes follow the value");
}

#[test]
fn unions() {
    wire(&Shape::Nothing, &[0]);
    wire(&Shape::Circle { centre: Point(1, 2), radius: 1.0 }, &[0xffff_ffff, 1, 2, 0x3f80_0000]);
    wire(&Shape::Line(Point(1, 2), Point(3, 4)), &[2, 1, 2, 3, 4]);
    wire(&Shape::Other(7, Bytes::from_static(b"abcd")), &[7, 4, 0x6162_6364]);
    wire(&Maybe::Yes(3), &[1, 3]);
    wire(&Maybe::No, &[0]);
    wire(&Unsigned::Nine(1), &[9, 1]);
    wire(&Unsigned::Large, &[4_000_000_000]);
    let error = read::<Unsigned>(&Bytes::from_static(&[0, 0, 0, 8])).unwrap_err();
    assert_eq!(*error.kind(), DecodeErrorKind::UnknownDiscriminant { name: "Unsigned", value: 8 });
    let error = encode_to_bytes(&Shape::Other(2, Bytes::new())).unwrap_err();
    assert_eq!(error, EncodeError::CaseInDefault { union: "Shape" });
}

#[test]
fn recursion_is_bounded() {
    let leaf = Some(Box::new(Tree { value: 1, left: None, right: None }));
    wire(&Tree { value: 2, left: leaf, right: None }, &[2, 1, 1, 0, 0, 0]);
    let deep: Bytes = [0, 0, 0, 0, 0, 0, 0, 1].repeat(10_000).into();
    assert_eq!(*read::<Tree>(&deep).unwrap_err().kind(), DecodeErrorKind::TooDeep { max: 100 });
}

#[test]
fn errors_have_rust_names() {
    let error = encode_to_bytes(&Everything { numbers: vec![0; 3], ..everything() }).unwrap_err();
    assert_eq!(error.to_string(), "Everything.numbers: length 3 exceeds the declared maximum 2");
    let error = encode_to_bytes(&Everything { exact: Bytes::new(), ..everything() }).unwrap_err();
    assert_eq!(error.to_string(), "Everything.exact: length 0 is not the declared 3");
    let mut bytes = encode_to_bytes(&everything()).unwrap().to_vec();
    bytes[44] = 0xff;
    assert_eq!(read::<Everything>(&bytes.into()).unwrap_err().to_string(), "Everything.text: not UTF-8");
}

#[test]
fn eligible_items_leave_the_stream() {
    use rpcrdma::xdr::{ReadChunk, ReducingSink};
    let value = Placed {
        points: vec![Point(1, 2)],
        point: Point(3, 4),
        fixed: *b"123456",
        corners: [Point(5, 6), Point(7, 8)],
        exact: Bytes::from_static(b"1234567"),
    };
    let mut inline = Vec::new();
    let mut sink = ReducingSink::for_call(&mut inline, 1);
    value.encode(&mut sink).unwrap();
    let (items, _) = sink.finish();
    assert_eq!(inline, [0, 0, 0, 1]);
    assert_eq!(items.iter().map(|item| item.data.len()).collect::<Vec<_>>(), [8, 8, 6, 16, 7]);
    assert_eq!(<Placed as rpcrdma::xdr::XdrType>::MAX_INLINE, Some(4));
    assert_eq!(<Placed as rpcrdma::xdr::XdrType>::MAX_DDP_ITEMS, Some(5));
    let reads: Vec<ReadChunk> = items
        .into_iter()
        .map(|item| ReadChunk { position: u32::try_from(item.position).unwrap(), data: item.data })
        .collect();
    let mut decoder = Decoder::new(&inline).with_read_chunks(&reads);
    assert_eq!(Placed::decode(&mut decoder).unwrap(), value);
    decoder.finish().unwrap();
}
