//! Calls with too few or too many arguments, or with Read chunks that do not match them (RFC 5531 §9, RFC 8166 §6.1).

use super::*;
use crate::xdr::encode_to_bytes;

/// RFC 5531 §9: arguments that end too early or too late are garbage. The handler does not see them.
#[test]
fn arguments_are_complete() {
    let item = Item(3, Bytes::from_static(b"four words"));
    let arguments = encode_to_bytes(&item).unwrap();
    for transport in [Transport::Rdma, Transport::Tcp] {
        let mut served = Served::new(transport, service(echo));
        let mut reply = |arguments: &[u8]| {
            let message = message(&header(Store::NUMBER), arguments);
            let inline = served.reply(arrived(received(&message)));
            assert_eq!(served.reply(arrived(MessagePayload::Long(message.into()))), inline);
            inline
        };
        assert_eq!(reply(&arguments), (Ok(()), arguments.clone()));
        for len in 0..arguments.len() {
            assert_eq!(reply(&arguments[..len]), (Err(RpcError::GarbageArguments), Bytes::new()), "{len}");
        }
        for more in [1, 4, 8, 400] {
            let longer = [&arguments[..], &vec![0; more]].concat();
            assert_eq!(reply(&longer), (Err(RpcError::GarbageArguments), Bytes::new()), "{more}");
        }
    }
}

/// Words followed by a Read chunk, as any client may send them.
struct Raw<'a>(&'a [u32], Bytes);

impl XdrType for Raw<'_> {
    const MIN_LEN: usize = 0;
    const MAX_LEN: Option<u64> = None;
    const MAX_INLINE: Option<u64> = None;
    const MAX_DDP_ITEMS: Option<u32> = Some(1);
}

impl XdrEncode for Raw<'_> {
    fn encoded_len(&self) -> usize {
        4 * self.0.len() + padded_len(self.1.len())
    }

    fn encode<S: Sink + ?Sized>(&self, sink: &mut S) -> Result<(), EncodeError> {
        self.0.iter().for_each(|word| sink.put_u32(*word));
        assert!(sink.reduce(&self.1));
        Ok(())
    }
}

/// RFC 8166 §4.5.2, §6.1: a Read chunk replaces an eligible item. A chunk in another place is a chunk error, also if
/// the arguments are complete without it. If the length of a chunk differs from the length of its item, the arguments
/// are garbage.
#[test]
fn read_chunks_replace_eligible_items() {
    let data = Bytes::from(vec![7; 3000]);
    let mut served = Served::new(Transport::Rdma, service(echo));
    let mut pair = RdmaPair::new();
    let mut reply = |procedure, words: &[u32]| {
        let call = pair.call(procedure, &Raw(words, data.clone()), &[3000]);
        assert_eq!((call.reads().len(), call.write_chunks().len()), (1, 1));
        let (token, reply) = (call.token, served.call(call).unwrap());
        let is_chunk_error = matches!(reply, ReplyCommand::ChunkError);
        match pair.reply(token, reply) {
            Ok(reply) => {
                Some((opened(reply.payload.as_slice()).0, reply.writes.iter().map(|chunk| chunk.data.len()).sum()))
            }
            Err(_) => {
                assert!(is_chunk_error);
                None
            }
        }
    };
    assert_eq!(reply(Store::NUMBER, &[3, 3000]), Some((Ok(()), 3000)));
    // After the arguments, before their end, in place of an item that is not eligible, and in place of an empty one.
    for (procedure, words) in
        [(0, &[][..]), (Name::NUMBER, &[0]), (Store::NUMBER, &[3]), (Name::NUMBER, &[3000]), (Store::NUMBER, &[3, 0])]
    {
        assert_eq!(reply(procedure, words), None, "{procedure}, {words:?}");
    }
    for len in [1, 2996, 3001, 4000] {
        let garbage = Some((Err(RpcError::GarbageArguments), 0));
        assert_eq!(reply(Store::NUMBER, &[3, len]), garbage, "{len}");
    }
}
