//! The blobstore protocol as a Rust trait.

use rpcrdma::server::{Context, HandlerError};

use super::derived::{BlobStatus, GetArgs, GetRes, PutArgs};

/// A store of blobs.
#[rpcrdma::service(program = 0x2000_0ABC, version = 1, name = "BLOBSTORE_V1", port = 20100)]
pub(crate) trait Blobstore {
    /// Does nothing.
    #[procedure(0)]
    async fn null(&self, _cx: &Context) -> Result<(), HandlerError> {
        Ok(())
    }

    /// Reads a part of a blob.
    #[procedure(1)]
    #[idempotent]
    #[reply_max(chunks = [u64::from(args.count)])]
    async fn get(&self, cx: &Context, args: GetArgs) -> Result<GetRes, HandlerError>;

    #[procedure(2)]
    async fn put(&self, cx: &Context, args: PutArgs) -> Result<BlobStatus, HandlerError>;

    #[procedure(3)]
    #[reply_max(inline = 4 + 4 * u64::from(count))]
    async fn several(&self, cx: &Context, first: i32, count: u32) -> Result<Vec<i32>, HandlerError>;
}

pub(super) struct Store;

impl Blobstore for Store {
    async fn get(&self, _cx: &Context, _args: GetArgs) -> Result<GetRes, HandlerError> {
        Ok(GetRes::Other(BlobStatus::Noent))
    }

    async fn put(&self, _cx: &Context, _args: PutArgs) -> Result<BlobStatus, HandlerError> {
        Ok(BlobStatus::Ok)
    }

    async fn several(&self, _cx: &Context, first: i32, count: u32) -> Result<Vec<i32>, HandlerError> {
        Ok((first..).take(count as usize).collect())
    }
}

#[test]
fn is_a_service() {
    use rpcrdma::server::Service;
    let service = BlobstoreServer::new(Store);
    assert_eq!((service.program(), service.version(), service.name()), (0x2000_0abc, 1, "BLOBSTORE_V1"));
}

#[test]
fn bounds_see_the_arguments_by_name() {
    use rpcrdma::service::{Procedure, ReplyBounds};
    assert_eq!(blobstore::Several::reply_bounds(&(1, 10)), ReplyBounds::new(44, &[]));
    assert_eq!(blobstore::Null::reply_bounds(&()), ReplyBounds::new(0, &[]));
    assert_eq!(blobstore::Several::NUMBER, 3);
}
