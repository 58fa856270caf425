//! Channels to the callers of calls: over connections that are not theirs.

use std::sync::Arc;

use super::{
    builder::ChannelConfig,
    channel::{Channel, ChannelInfo},
    link::Link,
};
use crate::driver::Port;

impl Channel {
    /// A channel over a connection that others own: it neither makes a new one nor closes this one, but an idle one is kept
    /// for it.
    pub(crate) fn back(port: &Arc<Port>, info: ChannelInfo, config: &Arc<ChannelConfig>) -> Self {
        port.hold();
        let link = Link { driver: None, port: Arc::clone(port), info, negotiates: false.into() };
        Self::over(None, Arc::new(link), Arc::clone(config))
    }
}
