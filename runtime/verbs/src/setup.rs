//! Connection set-up through the connection manager.

use std::{future::Future, io, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::time::timeout;

use super::{
    VerbsConfig, VerbsQueuePair,
    cm::{CmEvent, CmEvents, CmId, ConnParam, EventChannel},
    completion_hub::SharedQueues,
    error::VerbsError,
    ffi::rdma_cm_event_type as cm_event,
    objects::Qp,
    ports::PortAttempts,
};
use crate::provider::{ConnectRequest, Connected, Connector, Incoming, QueuePair as _, SetupError, SetupParams};

/// Maximum length of private data in a connection request on every fabric, in bytes: InfiniBand's limit, less the
/// connection manager's address header.
pub const MAX_PRIVATE_DATA: usize = 56;

/// InfiniBand's reason code for a rejection by the consumer, not by the connection manager.
const CONSUMER_REJECTED: i32 = 28;

/// InfiniBand's reason code for a rejection because nothing listens.
const NO_LISTENER: i32 = 8;

/// Default maximum number of times that a peer repeats a Send that finds no Receive. Credits guarantee a Receive, so
/// only a peer that exceeds its credits is affected (RFC 8166 §3.3.1). Linux does not retry either.
const RNR_RETRIES: u8 = 0;

/// Default maximum number of times that a peer repeats a Send that finds no shared Receive. All shared Receives may be
/// in use for a moment. 7 means without limit.
const SHARED_RNR_RETRIES: u8 = 7;

/// A connector whose connections use RDMA devices.
#[derive(Debug, Clone, Default)]
pub struct VerbsConnector {
    config: VerbsConfig,
}

impl VerbsConnector {
    /// Creates a connector with this configuration.
    #[must_use]
    pub fn new(config: VerbsConfig) -> Self {
        Self { config }
    }

    async fn attempt(&self, peer: SocketAddr, params: &SetupParams) -> Result<Connected<VerbsQueuePair>, SetupError> {
        let milliseconds = i32::try_from(params.timeout.as_millis()).unwrap_or(i32::MAX);
        let no_route = |source| VerbsError::NoRoute { addr: peer, source };
        self.config.check()?;
        let events = CmEvents::new()?;
        let id = CmId::new(&events)?;
        if let Some(class) = self.config.traffic_class {
            id.set_traffic_class(class)?;
        }
        id.resolve_addr(self.config.local, peer, milliseconds).map_err(no_route)?;
        wait_for_event(&events, cm_event::RDMA_CM_EVENT_ADDR_RESOLVED, peer).await?;
        id.resolve_route(milliseconds).map_err(no_route)?;
        wait_for_event(&events, cm_event::RDMA_CM_EVENT_ROUTE_RESOLVED, peer).await?;
        let mut queue_pair = VerbsQueuePair::new(id, events, params, &self.config, None)?;
        let offered = offer(params, &self.config, queue_pair.limits().depths(), None);
        let private_data = params.private_data_for(queue_pair.remote_invalidation());
        queue_pair.id().connect(&ConnParam { private_data, ..offered })?;
        let event = wait_for_event(queue_pair.events(), cm_event::RDMA_CM_EVENT_ESTABLISHED, peer).await?;
        log_path(&queue_pair, peer);
        // The peer may serve fewer than requested.
        queue_pair.max_reads = offered.initiator_depth.min(event.initiator_depth).into();
        queue_pair.set_initiator();
        let (local_addr, peer_addr) = (queue_pair.id().local_addr()?, queue_pair.id().peer_addr()?);
        Ok(Connected { queue_pair, private_data: event.private_data, local_addr, peer_addr })
    }
}

/// Returns the parameters to offer. Two limits are negotiated: the number of RDMA Reads to serve at a time, and the
/// number of local RDMA Reads in flight. Each is the minimum of the limits in `params`, of the device and of the peer's
/// request. `device` and `asked` are pairs of these limits, in this order.
fn offer(params: &SetupParams, config: &VerbsConfig, device: (u8, u8), asked: Option<(u8, u8)>) -> ConnParam<'static> {
    let asked = asked.unwrap_or((u8::MAX, u8::MAX));
    let lowest = |wanted: u32, device: u8, asked: u8| u8::try_from(wanted).unwrap_or(u8::MAX).min(device).min(asked);
    ConnParam {
        private_data: &[],
        responder_resources: lowest(params.responder_resources, device.0, asked.0),
        initiator_depth: lowest(params.initiator_depth, device.1, asked.1),
        retries: config.retries,
        rnr_retries: config.rnr_retries.unwrap_or(RNR_RETRIES),
    }
}

/// Logs the path that the connection manager has set up, if the device reports it.
fn log_path(queue_pair: &VerbsQueuePair, peer: SocketAddr) {
    if tracing::enabled!(tracing::Level::DEBUG)
        && let Some(path) = queue_pair.qp.as_ref().and_then(Qp::path)
    {
        tracing::debug!(%peer, device = queue_pair.limits.name, ?path, "connected");
    }
}

/// Waits for the `wanted` event, or for one that reports a failure.
async fn wait_for_event(events: &CmEvents, wanted: cm_event::Type, peer: SocketAddr) -> Result<CmEvent, SetupError> {
    loop {
        let event = events.next().await?;
        if event.kind == wanted {
            return Ok(event);
        }
        if let Some(error) = error_of_event(event.kind, event.status, event.private_data, peer) {
            return Err(error);
        }
    }
}

/// Returns the error that an event reports, or `None` if the event is irrelevant.
fn error_of_event(kind: cm_event::Type, status: i32, private_data: Bytes, peer: SocketAddr) -> Option<SetupError> {
    let os = || io::Error::from_raw_os_error(status.saturating_abs());
    Some(match kind {
        cm_event::RDMA_CM_EVENT_ADDR_ERROR | cm_event::RDMA_CM_EVENT_ROUTE_ERROR => {
            VerbsError::NoRoute { addr: peer, source: os() }.into()
        }
        cm_event::RDMA_CM_EVENT_REJECTED => match status {
            CONSUMER_REJECTED => SetupError::Rejected { private_data },
            NO_LISTENER => io::Error::new(io::ErrorKind::ConnectionRefused, "nothing listens on that port").into(),
            // iWARP gives no reason code. A rejection has private data, unlike a refused TCP connection.
            status if status < 0 && !private_data.is_empty() => SetupError::Rejected { private_data },
            status if status < 0 => os().into(),
            reason => {
                let what = format!("the connection manager rejected the connection with reason {reason}");
                io::Error::new(io::ErrorKind::ConnectionRefused, what).into()
            }
        },
        cm_event::RDMA_CM_EVENT_UNREACHABLE | cm_event::RDMA_CM_EVENT_CONNECT_ERROR if status < 0 => os().into(),
        cm_event::RDMA_CM_EVENT_UNREACHABLE => {
            io::Error::new(io::ErrorKind::HostUnreachable, format!("{peer} does not respond")).into()
        }
        cm_event::RDMA_CM_EVENT_CONNECT_ERROR => {
            io::Error::other(format!("failed to connect to {peer}: reason {status}")).into()
        }
        cm_event::RDMA_CM_EVENT_DISCONNECTED => {
            io::Error::new(io::ErrorKind::ConnectionReset, "peer closed the connection during set-up").into()
        }
        cm_event::RDMA_CM_EVENT_DEVICE_REMOVAL => io::Error::other("the RDMA device was removed during set-up").into(),
        _ => return None,
    })
}

impl Connector for VerbsConnector {
    type QueuePair = VerbsQueuePair;

    async fn connect(&self, peer: SocketAddr, params: SetupParams) -> Result<Connected<Self::QueuePair>, SetupError> {
        let limit = params.timeout;
        let connected = async {
            let mut attempts = PortAttempts::new();
            loop {
                match self.attempt(peer, &params).await {
                    Err(SetupError::Io(error)) if attempts.permit_another(error.kind()) => {}
                    connected => return connected,
                }
            }
        };
        timeout(limit, connected).await.map_err(|_| SetupError::TimedOut(limit))?
    }

    fn max_private_data(&self) -> usize {
        MAX_PRIVATE_DATA
    }
}

/// A connection that a peer has begun to set up. Its request has arrived.
#[derive(Debug)]
pub struct VerbsIncoming {
    // Dropped before the channel of its events.
    pub(super) id: CmId,
    /// The channel of the identifier's events. It is registered with the runtime that accepts the request, which may
    /// differ from the runtime of the listener.
    pub(super) channel: Arc<EventChannel>,
    pub(super) event: CmEvent,
    pub(super) peer_addr: SocketAddr,
    pub(super) config: VerbsConfig,
    /// The queues that the connections of the listener share.
    pub(super) shared: SharedQueues,
}

impl Incoming for VerbsIncoming {
    type QueuePair = VerbsQueuePair;
    type Request = VerbsRequest;

    fn peer_addr(&self) -> SocketAddr {
        self.peer_addr
    }

    fn request(self, _timeout: Duration) -> impl Future<Output = Result<VerbsRequest, SetupError>> + Send {
        std::future::ready(Ok(VerbsRequest(self)))
    }
}

/// A peer's connection request that has not been accepted or rejected yet.
#[derive(Debug)]
pub struct VerbsRequest(VerbsIncoming);

impl ConnectRequest for VerbsRequest {
    type QueuePair = VerbsQueuePair;

    fn private_data(&self) -> &[u8] {
        &self.0.event.private_data
    }

    async fn accept(self, params: SetupParams) -> Result<Connected<VerbsQueuePair>, SetupError> {
        let VerbsIncoming { id, channel, event, peer_addr, config, shared } = self.0;
        // If the registration fails, the identifier is dropped first: locals are dropped in reverse order.
        let (channel, id) = (channel, id);
        let events = CmEvents::register(Arc::clone(&channel))?;
        drop(channel);
        let mut queue_pair = VerbsQueuePair::new(id, events, &params, &config, Some(&shared))?;
        let asked = (event.responder_resources, event.initiator_depth);
        let offered = offer(&params, &config, queue_pair.limits().depths(), Some(asked));
        queue_pair.max_reads = offered.initiator_depth.into();
        let private_data = params.private_data_for(queue_pair.remote_invalidation());
        let rnr_retries = match config.rnr_retries {
            None if queue_pair.shares_receives() => SHARED_RNR_RETRIES,
            _ => offered.rnr_retries,
        };
        queue_pair.id().accept(&ConnParam { private_data, rnr_retries, ..offered })?;
        queue_pair.set_rnr_timer();
        timeout(params.timeout, wait_for_event(queue_pair.events(), cm_event::RDMA_CM_EVENT_ESTABLISHED, peer_addr))
            .await
            .map_err(|_| SetupError::TimedOut(params.timeout))??;
        log_path(&queue_pair, peer_addr);
        let local_addr = queue_pair.id().local_addr()?;
        Ok(Connected { queue_pair, private_data: event.private_data, local_addr, peer_addr })
    }

    async fn reject(self, private_data: Bytes) -> Result<(), SetupError> {
        Ok(self.0.id.reject(&private_data)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_events() {
        let peer: SocketAddr = "10.0.0.1:1".parse().unwrap();
        let of = |kind, status, data: &'static [u8]| error_of_event(kind, status, Bytes::from_static(data), peer);
        let rejected = cm_event::RDMA_CM_EVENT_REJECTED;
        assert!(
            matches!(of(rejected, 28, b"no"), Some(SetupError::Rejected { private_data }) if private_data == b"no"[..])
        );
        assert!(matches!(of(rejected, -libc::ECONNREFUSED, b"no"), Some(SetupError::Rejected { .. })));
        for error in [of(rejected, 8, b""), of(rejected, -libc::ECONNREFUSED, b""), of(rejected, 5, b"")] {
            match error {
                Some(SetupError::Io(error)) => assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused),
                other => panic!("{other:?}"),
            }
        }
        let error = of(cm_event::RDMA_CM_EVENT_ADDR_ERROR, -libc::ENODEV, b"").unwrap().to_string();
        assert!(error.contains("no RDMA device leads to 10.0.0.1:1"), "{error}");
        assert!(of(cm_event::RDMA_CM_EVENT_TIMEWAIT_EXIT, 0, b"").is_none());
        assert!(of(cm_event::RDMA_CM_EVENT_UNREACHABLE, i32::MIN, b"").is_some());
    }

    /// The offer never exceeds the configuration, the device's limits, or the peer's request.
    #[test]
    fn depths() {
        let params = |responder_resources, initiator_depth| {
            let mut params = SetupParams::default();
            (params.responder_resources, params.initiator_depth) = (responder_resources, initiator_depth);
            params
        };
        let offered = |params, device, asked| {
            let offered = offer(&params, &VerbsConfig::default(), device, asked);
            (offered.responder_resources, offered.initiator_depth)
        };
        assert_eq!(offered(params(16, 8), (128, 128), None), (16, 8));
        assert_eq!(offered(params(1000, 8), (255, 4), None), (255, 4));
        assert_eq!(offered(params(16, 16), (128, 128), Some((4, 2))), (4, 2));
        assert_eq!(offered(params(16, 16), (0, 128), Some((4, 0))), (0, 0));
    }

    #[test]
    fn retries() {
        let offered = |config: &VerbsConfig| {
            let offered = offer(&SetupParams::default(), config, (1, 1), None);
            (offered.retries, offered.rnr_retries)
        };
        let mut config = VerbsConfig::default();
        assert_eq!(offered(&config), (7, 0));
        (config.retries, config.rnr_retries) = (2, Some(5));
        assert_eq!(offered(&config), (2, 5));
    }

    /// A value that is out of its bounds is refused before a device is needed.
    #[tokio::test]
    async fn settings_have_bounds() {
        let set = |change: fn(&mut VerbsConfig)| {
            let mut config = VerbsConfig::default();
            change(&mut config);
            config
        };
        for (config, name) in [
            (set(|config| config.retries = 8), "VerbsConfig::retries is 8, expected 0 to 7"),
            (set(|config| config.rnr_retries = Some(8)), "VerbsConfig::rnr_retries is 8, expected 0 to 7"),
            (set(|config| config.ack_timeout = Some(32)), "VerbsConfig::ack_timeout is 32, expected 1 to 31"),
            (set(|config| config.ack_timeout = Some(0)), "VerbsConfig::ack_timeout is 0, expected 1 to 31"),
        ] {
            let error = crate::VerbsListener::bind("127.0.0.1:0".parse().unwrap(), config.clone()).unwrap_err();
            assert_eq!((error.kind(), error.to_string().as_str()), (io::ErrorKind::InvalidInput, name));
            let connector = VerbsConnector::new(config);
            match connector.connect("127.0.0.1:9".parse().unwrap(), SetupParams::default()).await {
                Err(SetupError::Io(error)) => assert_eq!(error.to_string(), name),
                other => panic!("{other:?}"),
            }
        }
        let widest = set(|config| (config.ack_timeout, config.retries, config.rnr_retries) = (Some(31), 7, Some(7)));
        assert!(widest.check().is_ok());
    }

    /// Listening succeeds or reports an error about RDMA. Connecting to a port on which nothing listens fails. Both
    /// hold with and without a device.
    #[tokio::test]
    async fn without_a_device() {
        let listening = crate::VerbsListener::bind("127.0.0.1:0".parse().unwrap(), VerbsConfig::default());
        if let Err(error) = listening {
            let text = error.to_string();
            assert!(text.contains("RDMA"), "{text}");
        }
        let mut params = SetupParams::default();
        params.timeout = Duration::from_secs(1);
        let connecting = VerbsConnector::default().connect("127.0.0.1:9".parse().unwrap(), params).await;
        assert!(connecting.is_err());
    }
}
