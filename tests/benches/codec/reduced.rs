//! A message whose large eligible item is removed from the stream and inserted by reference, as over RDMA.

use std::hint::black_box;

use rpcrdma::xdr::{Decoder, ReadChunk, ReducingSink, XdrEncode};

use crate::Data;

/// A message, and its encoding as a reduced stream and a Read chunk.
pub(crate) struct Message {
    value: Data,
    stream: Vec<u8>,
    chunks: Vec<ReadChunk>,
}

impl Message {
    pub(crate) fn new() -> Self {
        let value = crate::large_value();
        let mut stream = Vec::new();
        let mut sink = ReducingSink::for_call(&mut stream, 1024);
        value.encode(&mut sink).expect("within bounds");
        let (reduced, _) = sink.finish();
        let chunks =
            reduced.into_iter().map(|item| ReadChunk { position: item.position as u32, data: item.data }).collect();
        Self { value, stream, chunks }
    }

    /// Encodes the message into `stream`, without the item.
    pub(crate) fn encode(&self, stream: &mut Vec<u8>) {
        stream.clear();
        let mut sink = ReducingSink::for_call(stream, 1024);
        black_box(&self.value).encode(&mut sink).expect("within bounds");
        black_box((sink.finish(), &*stream));
    }

    pub(crate) fn decode(&self) -> Data {
        let mut decoder = Decoder::new(black_box(&self.stream)).with_read_chunks(&self.chunks);
        let value = decoder.read().expect("encoded message does not decode");
        decoder.finish().expect("bytes left over");
        value
    }
}
