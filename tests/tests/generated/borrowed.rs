//! Borrowed types encode to the same bytes and report the same errors as owned types, and refer to the memory of the
//! message. Replies are decoded in place.

use rpcrdma::xdr::{DecodeErrorKind, Decoder, FlatSink, ReadChunk, ReducingSink, XdrDecode, XdrDecodeRef, XdrEncode};

use rpcrdma::{
    client::{CallError, CallOptions, Channel},
    server::{Context, HandlerError, Server},
};

use crate::borrowed::{
    Component, Compound, CompoundRef, Corners, CornersRef, Entry, EntryRef, Handle, HandleRef, Operation, OperationRef,
    Path, Placed, PlacedRef, ReadArgs, ReadOk, ReadOkRef, Result as Outcome, ResultRef, Time, Tree, TreeRef,
    files_v1::{self, FilesV1, FilesV1Client, FilesV1Server},
};

fn bytes<T: XdrEncode>(value: &T) -> Vec<u8> {
    let mut out = Vec::new();
    value.encode(&mut FlatSink::new(&mut out)).unwrap();
    assert_eq!(out.len(), value.encoded_len());
    out
}

fn owned<T: XdrDecode>(bytes: &[u8]) -> Result<T, String> {
    T::decode(&mut Decoder::new(bytes)).map_err(|error| error.to_string())
}

fn view<'a, T: XdrDecodeRef<'a>>(bytes: &'a [u8]) -> Result<T, String> {
    let mut decoder = Decoder::new(bytes);
    let value = T::decode_ref(&mut decoder).map_err(|error| error.to_string())?;
    assert!(decoder.memory() < 4096, "memory allocated for more than lists and boxes");
    Ok(value)
}

/// Checks that the owned and the borrowed form decode from `bytes`, and that the borrowed form encodes to them. Returns
/// the borrowed value.
fn same<'a, T, V>(value: &T, bytes: &'a [u8]) -> V
where
    T: XdrEncode + XdrDecode + PartialEq + std::fmt::Debug,
    V: XdrEncode + XdrDecodeRef<'a, Owned = T>,
{
    let read: V = view(bytes).unwrap();
    assert_eq!(self::bytes(&read), bytes);
    assert_eq!(&owned::<T>(bytes).unwrap(), value);
    read
}

/// Checks that the owned and the borrowed form report equal errors for each truncated message, and for each message
/// with a damaged byte.
fn same_errors<T: XdrDecode, V: for<'b> Reads<'b>>(bytes: &[u8]) {
    for len in 0..bytes.len() {
        let cut = &bytes[..len];
        let error = owned::<T>(cut).err().expect("decoded from too few bytes");
        assert!(error.contains(": "), "{len} bytes: no path in `{error}`");
        assert_eq!(V::error(cut), Some(error), "{len} bytes");
    }
    for at in 0..bytes.len() {
        let mut damaged = bytes.to_vec();
        damaged[at] = 0xff;
        assert_eq!(V::error(&damaged), owned::<T>(&damaged).err(), "byte {at}");
    }
}

/// A borrowed type that can be decoded from bytes with the lifetime `'b`.
trait Reads<'b> {
    fn error(bytes: &'b [u8]) -> Option<String>;
}

macro_rules! reads {
    ($($name:ident: $ty:ident),*) => {$(
        struct $name;
        impl<'b> Reads<'b> for $name {
            fn error(bytes: &'b [u8]) -> Option<String> {
                $ty::decode_ref(&mut Decoder::new(bytes)).err().map(|error| error.to_string())
            }
        }
    )*};
}
reads!(Results: ResultRef, Trees: TreeRef, AllCorners: CornersRef);

fn entry(id: u64) -> Entry {
    Entry {
        id,
        name: Component(format!("name-{id}").into()),
        changed: Time { seconds: id, nanoseconds: 7 },
        object: Some(Handle(vec![id as u8; 5].into())),
        links: Path(vec![Component("a".into()), Component("bc".into())]),
        comment: "".into(),
    }
}

#[test]
fn decoded_values_refer_to_the_message() {
    let page = Outcome::Case0((0..9).map(entry).collect());
    let bytes = bytes(&page);
    let ResultRef::Case0(entries) = same::<_, ResultRef<'_>>(&page, &bytes) else { panic!("decoded as another arm") };
    let entry: &EntryRef<'_> = &entries[8];
    assert_eq!((entry.id, entry.name.to_str(), entry.changed.seconds), (8, Ok("name-8"), 8));
    assert_eq!(entry.object, Some(HandleRef(&[8; 5])));
    assert!(bytes.as_ptr_range().contains(&entry.name.as_ptr()));
    assert_eq!(entry.links[1].to_str(), Ok("bc"));
    same_errors::<Outcome, Results>(&bytes);
}

#[test]
fn trees_arrays_and_fixed_lengths_are_read_in_both_forms() {
    let leaf = |label: &'static str| Tree { label: label.as_bytes().into(), left: None, right: None, children: vec![] };
    let tree = Tree { left: Some(Box::new(leaf("left"))), children: vec![leaf("x"), leaf("yz")], ..leaf("top") };
    let bytes = bytes(&tree);
    let read: TreeRef<'_> = same(&tree, &bytes);
    assert_eq!((read.left.unwrap().label, read.children[1].label), (&b"left"[..], &b"yz"[..]));
    same_errors::<Tree, Trees>(&bytes);

    let corners = Corners {
        corner: ["a", "b", "c", "d"].map(|name| Component(name.into())),
        other: Handle(vec![1].into()),
        whole: crate::borrowed::Block(vec![3; 8192].into()),
        numbers: vec![1, 2, 3],
    };
    let bytes = self::bytes(&corners);
    let read: CornersRef<'_> = same(&corners, &bytes);
    assert_eq!((read.corner[3].to_str(), read.whole.len()), (Ok("d"), 8192));
    same_errors::<Corners, AllCorners>(&bytes[..64]);
}

#[test]
fn reduced_items_refer_to_their_chunks() {
    let placed = Placed {
        first: Handle(vec![1; 60].into()),
        text: "x".repeat(99).into(),
        fixed: vec![2; 16].into(),
        times: vec![Time { seconds: 1, nanoseconds: 2 }; 3],
    };
    let mut stream = Vec::new();
    let mut sink = ReducingSink::for_call(&mut stream, 1);
    placed.encode(&mut sink).unwrap();
    let (reduced, _) = sink.finish();
    let chunk = |item: rpcrdma::xdr::ReducedItem| ReadChunk { position: item.position as u32, data: item.data };
    let chunks: Vec<ReadChunk> = reduced.into_iter().map(chunk).collect();
    assert_eq!(chunks.len(), 4);
    let mut decoder = Decoder::new(&stream).with_read_chunks(&chunks);
    let read = PlacedRef::decode_ref(&mut decoder).unwrap();
    decoder.finish().unwrap();
    assert!(chunks[0].data.as_ptr_range().contains(&read.first.as_ptr()));
    assert_eq!((read.text.len(), read.fixed, &read.times), (99, &[2; 16][..], &placed.times));
    // Encoding a borrowed value copies its views, so that the items can leave the stream.
    let mut again = Vec::new();
    let mut sink = ReducingSink::for_call(&mut again, 1);
    read.encode(&mut sink).unwrap();
    let (reduced, _) = sink.finish();
    assert_eq!(again, stream);
    assert!(reduced.iter().zip(&chunks).all(|(item, chunk)| item.data == chunk.data));
}

#[test]
fn unknown_discriminant_of_an_open_union_ends_decoding() {
    let compound = Compound {
        operations: vec![Operation::OpLookup(Component("a".into())), Operation::Unknown(9999), Operation::OpStop],
    };
    let bytes = bytes(&compound);
    let mut decoder = Decoder::new(&bytes);
    let read = Compound::decode(&mut decoder).unwrap();
    assert_eq!(read.operations, compound.operations[..2]);
    assert_eq!((read.operations[1].discriminant(), decoder.remaining(), decoder.is_abandoned()), (9999, 0, true));
    decoder.finish().unwrap();
    let read: CompoundRef<'_> = view(&bytes).unwrap();
    assert_eq!(read.operations[1], OperationRef::Unknown(9999));

    // `Unknown` with the number of an arm is an error.
    let known = Operation::Unknown(7);
    assert!(known.encode(&mut FlatSink::new(&mut Vec::new())).is_err());
}

/// The path of an error contains the names of the fields and the index of the array element.
#[test]
fn errors_name_the_innermost_item() {
    let page = Outcome::Case0((0..3).map(entry).collect());
    let bytes = bytes(&page);
    let at = bytes.len() - 4 - 4; // The length of the last comment.
    let mut cut = bytes[..at].to_vec();
    cut.extend(u32::MAX.to_be_bytes());
    let error = owned::<Outcome>(&cut).unwrap_err();
    assert_eq!(error, "result.entries[2].comment: length 4294967295 exceeds remaining 0");
    let mut inside = Decoder::new(&bytes[..4 + 4 + 8 + 4 + 8 + 6]);
    let error = Outcome::decode(&mut inside).unwrap_err();
    assert_eq!(error.to_string(), "result.entries[0].changed.seconds: 8 bytes needed, 6 remain");
    assert_eq!(*error.kind(), DecodeErrorKind::Truncated { needed: 8, remaining: 6 });
}

/// A service that returns the requested number of bytes, all of which are 7.
struct Sevens;

impl FilesV1 for Sevens {
    async fn read(&self, _cx: &Context, args: ReadArgs) -> std::result::Result<ReadOk, HandlerError> {
        Ok(ReadOk { eof: args.object.is_empty(), data: vec![7; args.count as usize].into() })
    }

    async fn write(&self, _cx: &Context, _args: Placed) -> std::result::Result<(), HandlerError> {
        Ok(())
    }
}

#[tokio::test]
async fn replies_are_decoded_in_place() {
    let server =
        Server::builder().service(FilesV1Server::new(Sevens)).listen("iwarp://127.0.0.1:0").bind().await.unwrap();
    let url = server.urls()[0].clone();
    tokio::spawn(server.serve());
    let channel = Channel::connect(&url).await.unwrap();
    for count in [0, 9, 100_000] {
        let args = ReadArgs { object: Handle(vec![1].into()), count };
        let sum = channel.call_view::<files_v1::Read, _, _>(&args, CallOptions::new(), |decoder| {
            let reply: ReadOkRef<'_> = decoder.read_ref()?;
            Ok(reply.data.iter().map(|&byte| u64::from(byte)).sum::<u64>())
        });
        assert_eq!(sum.await.unwrap(), 7 * u64::from(count));
        // The method of the generated client passes a view of the message, or of the memory that an RDMA Write filled.
        let client = FilesV1Client::new(channel.clone());
        let ends = client.read_view(&args, CallOptions::new(), |reply: ReadOkRef<'_>| {
            (reply.eof, reply.data.len(), reply.data.last().copied())
        });
        assert_eq!(ends.await.unwrap(), (false, count as usize, (count > 0).then_some(7)));
    }
    let args = ReadArgs { object: Handle::default(), count: 1 };
    let nothing = channel.call_view::<files_v1::Read, (), _>(&args, CallOptions::new(), |_| Ok(()));
    assert!(matches!(nothing.await, Err(CallError::Decode { .. })), "bytes left over were accepted");
}
