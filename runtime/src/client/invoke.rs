//! The trait of types that carry the calls of generated clients.

use std::future::Future;

use super::{call::CallOptions, channel::Channel, error::CallError};
use crate::{
    service::Procedure,
    xdr::{DecodeError, Decoder},
};

/// A carrier of the calls of generated clients. [`Channel`] implements it, and is the default type parameter of
/// generated clients. With the feature `tower`, `ServiceCaller` implements it for `tower` services.
///
/// ```
/// use rpcrdma::{
///     client::{CallError, CallOptions, Channel, Invoke},
///     service::Procedure,
///     xdr::{DecodeError, Decoder},
/// };
///
/// /// Makes each call at most twice, the second time over another channel.
/// struct WithReserve {
///     first: Channel,
///     reserve: Channel,
/// }
///
/// impl Invoke for WithReserve {
///     async fn invoke<'a, P: Procedure>(
///         &'a self,
///         args: &'a P::Args,
///         options: CallOptions,
///     ) -> Result<P::Reply, CallError>
///     where
///         P::Args: Sync,
///     {
///         match self.first.call::<P>(args, options).await {
///             Err(error) if error.is_retry_safe() || P::IDEMPOTENT => {
///                 self.reserve.call::<P>(args, CallOptions::new()).await
///             }
///             result => result,
///         }
///     }
///
///     async fn invoke_view<'a, P: Procedure, T, F>(
///         &'a self,
///         args: &'a P::Args,
///         options: CallOptions,
///         read: F,
///     ) -> Result<T, CallError>
///     where
///         P::Args: Sync,
///         T: Send + 'a,
///         F: Fn(&mut Decoder<'_>) -> Result<T, DecodeError> + Send + Sync + 'a,
///     {
///         self.first.call_view::<P, T, F>(args, options, read).await
///     }
/// }
/// ```
pub trait Invoke: Send + Sync {
    /// Calls procedure `P`; see [`Channel::call`].
    ///
    /// # Errors
    /// See [`CallError`].
    fn invoke<'a, P: Procedure>(
        &'a self,
        args: &'a P::Args,
        options: CallOptions,
    ) -> impl Future<Output = Result<P::Reply, CallError>> + Send + 'a
    where
        P::Args: Sync;

    /// Calls procedure `P`, and decodes the result in place with `read`; see [`Channel::call_view`].
    ///
    /// # Errors
    /// See [`CallError`].
    fn invoke_view<'a, P: Procedure, T, F>(
        &'a self,
        args: &'a P::Args,
        options: CallOptions,
        read: F,
    ) -> impl Future<Output = Result<T, CallError>> + Send + 'a
    where
        P::Args: Sync,
        T: Send + 'a,
        F: Fn(&mut Decoder<'_>) -> Result<T, DecodeError> + Send + Sync + 'a;
}

impl Invoke for Channel {
    #[inline]
    fn invoke<'a, P: Procedure>(
        &'a self,
        args: &'a P::Args,
        options: CallOptions,
    ) -> impl Future<Output = Result<P::Reply, CallError>> + Send + 'a
    where
        P::Args: Sync,
    {
        self.call::<P>(args, options)
    }

    #[inline]
    fn invoke_view<'a, P: Procedure, T, F>(
        &'a self,
        args: &'a P::Args,
        options: CallOptions,
        read: F,
    ) -> impl Future<Output = Result<T, CallError>> + Send + 'a
    where
        P::Args: Sync,
        T: Send + 'a,
        F: Fn(&mut Decoder<'_>) -> Result<T, DecodeError> + Send + Sync + 'a,
    {
        self.call_view::<P, T, F>(args, options, read)
    }
}
