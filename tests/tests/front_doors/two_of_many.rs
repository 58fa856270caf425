//! Results with an array of eligible items: the client provides memory for the elements that a call asks for, not for
//! the maximum of the array.

use std::sync::Arc;

use rpcrdma::{
    client::{CallError, Channel},
    provider::sim::SimFabric,
    server::{Context, HandlerError, Server, Service},
    service::{BoundsReply, Procedure, ReplyBounds},
    xdr::Bytes,
};
use tokio::sync::Notify;

/// Maximum length of a value in bytes, as in the XDR.
const VALUE_MAX: u64 = 10 << 20;

rpcrdma::xdr! {
    typedef string key<64>;
    struct keys { key names<16>; };

    union value switch (bool exists) {
    case TRUE:
        @ddp opaque data<10485760>;
    case FALSE:
        void;
    };

    struct values { @max(len(names)) value all<16>; };

    program MANY_VALUES {
        version MANY_VALUES_V1 { @idempotent values GET_MANY(keys) = 1; } = 1;
    } = 0x20000AC0;
}

impl BoundsReply for Keys {
    fn reply_bounds(&self) -> ReplyBounds {
        let names = self.names.len() as u64;
        ReplyBounds::new(4 + names * 8, &[]).and_chunks(names, &[VALUE_MAX])
    }
}

/// A program with the procedure of MANY_VALUES, as a Rust trait.
#[rpcrdma::service(program = 0x2000_0AC1, version = 1, name = "MANY_VALUES_IN_RUST")]
pub(crate) trait ManyValues {
    #[procedure(1)]
    #[idempotent]
    #[reply_max(computed)]
    async fn get_many(&self, cx: &Context, keys: Keys) -> Result<Values, HandlerError>;
}

/// A service that finds every second key, and returns `surplus` more values than keys. Its handlers wait until the test
/// has looked at the client's memory.
#[derive(Clone, Default)]
struct Store {
    called: Arc<Notify>,
    may_answer: Arc<Notify>,
    surplus: usize,
}

impl Store {
    async fn values(&self, keys: &Keys) -> Values {
        self.called.notify_one();
        self.may_answer.notified().await;
        let value = |at: usize| match at % 2 {
            0 => Value::False,
            _ => Value::True(Bytes::from(vec![at as u8; 100_000])),
        };
        Values { all: (0..keys.names.len() + self.surplus).map(value).collect() }
    }
}

impl many_values_v1::ManyValuesV1 for Store {
    async fn get_many(&self, _cx: &Context, keys: Keys) -> Result<Values, HandlerError> {
        Ok(self.values(&keys).await)
    }
}

impl ManyValues for Store {
    async fn get_many(&self, _cx: &Context, keys: Keys) -> Result<Values, HandlerError> {
        Ok(self.values(&keys).await)
    }
}

fn keys(count: usize) -> Keys {
    Keys { names: (0..count).map(|at| Key(format!("key {at}").into())).collect() }
}

#[test]
fn bounds_count_the_keys_of_the_call() {
    for count in [0, 2, 16] {
        let keys = keys(count);
        let bounds = many_values_v1::GetMany::reply_bounds(&keys);
        assert_eq!(bounds, keys.reply_bounds());
        assert_eq!(bounds.chunks.as_slice(), vec![VALUE_MAX; count]);
        assert_eq!(many_values::GetMany::reply_bounds(&keys), bounds);
    }
}

/// Serves `service`, whose handlers use `store`, over a simulated fabric, and makes a call with `call`. Returns the
/// result, and the number of memory regions and of bytes that the client had registered during the call.
async fn called<T>(
    service: impl Service,
    store: Store,
    call: impl AsyncFnOnce(Channel) -> Result<T, CallError>,
) -> (Result<T, CallError>, u32, u64) {
    let fabric = SimFabric::default();
    let server = Server::builder().service(service).listen_with(fabric.listen(0).unwrap()).bind().await.unwrap();
    let (address, handle) = (server.local_addrs()[0], server.handle());
    let serving = tokio::spawn(server.serve());
    let channel = Channel::connect_with(fabric.connector(), address).await.unwrap();
    let looks = async {
        store.called.notified().await;
        let counters = channel.counters();
        store.may_answer.notify_one();
        (counters.exposed_regions, counters.registered_bytes)
    };
    let (result, (regions, bytes)) = tokio::join!(call(channel.clone()), looks);
    drop(channel);
    handle.shutdown();
    serving.await.unwrap();
    (result, regions, bytes)
}

/// For a call with two keys, of at most 16, the client registers two regions with the memory of two values. For three
/// keys, the client of the Rust trait registers three.
#[tokio::test]
async fn a_call_provides_memory_for_its_own_keys() {
    let store = Store::default();
    let service = many_values_v1::ManyValuesV1Server::new(store.clone());
    let (values, regions, bytes) = called(service, store, async |channel| {
        many_values_v1::ManyValuesV1Client::new(channel).get_many(&keys(2)).await
    })
    .await;
    assert_eq!((regions, bytes), (2, 2 * VALUE_MAX));
    let values = values.unwrap().all;
    assert_eq!(values, [Value::False, Value::True(Bytes::from(vec![1; 100_000]))]);

    let store = Store::default();
    let service = ManyValuesServer::new(store.clone());
    let (values, regions, bytes) =
        called(service, store, async |channel| ManyValuesClient::new(channel).get_many(&keys(3)).await).await;
    assert_eq!((regions, bytes), (3, 3 * VALUE_MAX));
    assert_eq!(values.unwrap().all.len(), 3);
}

/// A server that returns more values than keys violates its own binding. The client gets an RPC error.
#[tokio::test]
async fn a_surplus_element_is_an_error_of_the_server() {
    let store = Store { surplus: 2, ..Store::default() };
    let service = many_values_v1::ManyValuesV1Server::new(store.clone());
    let (values, ..) = called(service, store, async |channel| {
        many_values_v1::ManyValuesV1Client::new(channel).get_many(&keys(2)).await
    })
    .await;
    assert!(matches!(values, Err(CallError::Rpc { .. })), "{values:?}");
}
