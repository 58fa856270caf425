//! Which provider a URL names.

mod url;

use std::{io, net::SocketAddr};

pub use url::{Scheme, Url, UrlError};

use crate::provider::iwarp::{IwarpConfig, IwarpConnector, IwarpListener};

fn iwarp_config(url: &Url) -> IwarpConfig {
    IwarpConfig { crc: url.crc(), ..IwarpConfig::default() }
}

/// The connector that an `iwarp://` URL asks for.
pub(crate) fn iwarp_connector(url: &Url) -> IwarpConnector {
    IwarpConnector::new(iwarp_config(url))
}

/// The listener that an `iwarp://` URL asks for.
pub(crate) async fn iwarp_listener(url: &Url, addr: SocketAddr) -> io::Result<IwarpListener> {
    IwarpListener::bind(addr, iwarp_config(url)).await
}
