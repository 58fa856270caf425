//! Versions of a program that inherit procedures from another version. One implementation serves all versions, and the
//! client of each version has the inherited procedures, too.

use rpcrdma::{
    client::{CallError, Channel},
    provider::sim::SimFabric,
    server::{Context, HandlerError, Server},
    service::{BoundsReply, Procedure, ProcedureId, ReplyBounds},
    xdr::Bytes,
};

rpcrdma::xdr! {
    #![ulb = "tests/front_doors/based_version.ulb"]

    struct get_args { string name<64>; unsigned int count; };
    struct get_ok { @ddp(max = count) opaque data<>; };
    struct stat_ok { unsigned hyper size; };
    struct stat2_ok { unsigned hyper size; unsigned hyper modified; };

    program STORE {
        version STORE_V1 {
            void NULL(void) = 0;
            @idempotent
            get_ok GET(get_args) = 1;
            stat_ok STAT(string name<64>) = 2;
            opaque<> JOIN(opaque first<>, opaque second<>) = 3;
            @reply_max(computed)
            get_ok COPY(get_args wanted, unsigned int times) = 4;
        } = 1;

        /* With modification times. */
        version STORE_V2 : STORE_V1 {
            stat2_ok STAT(string name<64>) = 2;
            unsigned int COUNT(void) = 5;
        } = 2;

        version STORE_V3 : STORE_V2 {
            void CLEAR(void) = 6;
        } = 3;
    } = 0x20000AC2;
}

use store_v1::StoreV1;
use store_v2::StoreV2;
use store_v3::StoreV3;

impl BoundsReply for store_v1::CopyArgs {
    fn reply_bounds(&self) -> ReplyBounds {
        ReplyBounds::new(4, &[u64::from(self.wanted.count) * u64::from(self.times)])
    }
}

struct Store;

impl StoreV1 for Store {
    async fn get(&self, _cx: &Context, args: GetArgs) -> Result<GetOk, HandlerError> {
        Ok(GetOk { data: Bytes::from(vec![7; args.count as usize]) })
    }

    async fn stat(&self, _cx: &Context, _name: rpcrdma::xdr::XdrString) -> Result<StatOk, HandlerError> {
        Ok(StatOk { size: 10 })
    }

    async fn join(&self, _cx: &Context, first: Bytes, second: Bytes) -> Result<Bytes, HandlerError> {
        Ok([first, second].concat().into())
    }

    async fn copy(&self, _cx: &Context, wanted: GetArgs, times: u32) -> Result<GetOk, HandlerError> {
        Ok(GetOk { data: Bytes::from(vec![8; (wanted.count * times) as usize]) })
    }
}

impl StoreV2 for Store {
    async fn stat(&self, _cx: &Context, _name: rpcrdma::xdr::XdrString) -> Result<Stat2Ok, HandlerError> {
        Ok(Stat2Ok { size: 10, modified: 20 })
    }

    async fn count(&self, _cx: &Context) -> Result<u32, HandlerError> {
        Ok(1)
    }
}

impl StoreV3 for Store {
    async fn clear(&self, _cx: &Context) -> Result<(), HandlerError> {
        Ok(())
    }
}

#[test]
fn procedures_keep_their_numbers_bounds_and_properties() {
    let args = GetArgs { name: "n".into(), count: 9 };
    assert_eq!(store_v1::Get::reply_bounds(&args), ReplyBounds::new(4, &[9]));
    assert_eq!(store_v3::Get::reply_bounds(&args), ReplyBounds::new(4, &[9]));
    const { assert!(store_v2::Get::IDEMPOTENT && store_v3::Get::IDEMPOTENT && !store_v3::Stat::IDEMPOTENT) };
    assert_eq!(ProcedureId::of::<store_v3::Get>(), ProcedureId::new(0x2000_0ac2, 3, 1));
    assert_eq!(store_v3::Get::NAME, "STORE_V3.GET");
    // The binding file states a bound for the first version, and another for the third.
    let join = |first: &'static [u8]| store_v1::JoinArgs { first: first.into(), second: Bytes::new() };
    assert_eq!(store_v2::Join::reply_bounds(&join(b"12")).inline, 8 + 2);
    assert_eq!(store_v3::Join::reply_bounds(&join(b"12")).inline, 100);
}

#[tokio::test]
async fn one_implementation_serves_all_versions() -> Result<(), CallError> {
    let fabric = SimFabric::default();
    let store = std::sync::Arc::new(Store);
    let server = Server::builder()
        .service(store_v1::StoreV1Server::from_arc(store.clone()))
        .service(store_v2::StoreV2Server::from_arc(store.clone()))
        .service(store_v3::StoreV3Server::from_arc(store))
        .listen_with(fabric.listen(0).unwrap())
        .bind()
        .await
        .unwrap();
    let (address, handle) = (server.local_addrs()[0], server.handle());
    let serving = tokio::spawn(server.serve());
    let channel = Channel::connect_with(fabric.connector(), address).await.unwrap();

    let first = store_v1::StoreV1Client::new(channel.clone());
    assert_eq!(first.stat("n".into()).await?, StatOk { size: 10 });
    let third = store_v3::StoreV3Client::new(channel);
    third.null().await?;
    let args = GetArgs { name: "n".into(), count: 50_000 };
    assert_eq!(third.get(&args).await?, first.get(&args).await?);
    assert_eq!(third.join(Bytes::from("a"), Bytes::from("b")).await?, "ab");
    assert_eq!(third.copy(args, 2).await?.data.len(), 100_000);
    assert_eq!(third.stat("n".into()).await?, Stat2Ok { size: 10, modified: 20 });
    assert_eq!(third.count().await?, 1);
    third.clear().await?;

    drop((first, third));
    handle.shutdown();
    serving.await.unwrap();
    Ok(())
}
