//! Calls with more eligible items than servers accept by default. Servers accept them if the binding allows it.

use rpcrdma::{
    client::Channel,
    server::{Context, HandlerError, Server, Service},
    xdr::Bytes,
};

rpcrdma::xdr! {
    struct piece {
        @ddp opaque data<>;
    };

    struct pieces {
        piece all<20>;
    };

    program MANY {
        version MANY_V1 {
            @limit(chunks = 20)
            unsigned int PUT(pieces) = 1;
        } = 1;
    } = 0x20000ABD;
}

/// A program with the procedure of MANY, as a Rust trait.
#[rpcrdma::service(program = 0x2000_0ABE, version = 1, name = "MANY_IN_RUST")]
pub(crate) trait Many {
    #[procedure(1)]
    async fn put(&self, cx: &Context, pieces: Pieces) -> Result<u32, HandlerError>;
}

struct Store;

fn bytes(pieces: &Pieces) -> u32 {
    pieces.all.iter().map(|piece| u32::try_from(piece.data.len()).unwrap()).sum()
}

impl many_v1::ManyV1 for Store {
    async fn put(&self, _cx: &Context, pieces: Pieces) -> Result<u32, HandlerError> {
        Ok(bytes(&pieces))
    }
}

impl Many for Store {
    async fn put(&self, _cx: &Context, pieces: Pieces) -> Result<u32, HandlerError> {
        Ok(bytes(&pieces))
    }
}

#[test]
fn services_declare_their_chunk_limit() {
    assert_eq!(many_v1::ManyV1Server::new(Store).max_chunks(), 20);
    assert_eq!(ManyServer::new(Store).max_chunks(), 20);
    assert_eq!(super::service::BlobstoreServer::new(super::service::Store).max_chunks(), 1);
}

#[tokio::test]
async fn servers_accept_the_declared_chunks() {
    // Too long to be sent inline, so each item has a Read chunk.
    let pieces = Pieces { all: (0..20).map(|_| Piece { data: Bytes::from(vec![7; 8000]) }).collect() };
    for version in [1, 2] {
        let server = Server::builder()
            .service(many_v1::ManyV1Server::new(Store))
            .service(ManyServer::new(Store))
            .listen("iwarp://127.0.0.1:0")
            .bind()
            .await
            .unwrap();
        let (url, handle) = (format!("{}?version={version}", server.urls()[0]), server.handle());
        let serving = tokio::spawn(server.serve());
        let channel = Channel::connect(&url).await.unwrap();
        assert_eq!(many_v1::ManyV1Client::new(channel.clone()).put(&pieces).await.unwrap(), 160_000);
        assert_eq!(ManyClient::new(channel).put(&pieces).await.unwrap(), 160_000);
        handle.shutdown();
        serving.await.unwrap();
    }
}
