//! The provider conformance suite over iWARP on the loopback interface: with default settings, without CRCs, and with
//! the smallest FPDUs over IPv6.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use rpcrdma_iwarp::{FpduSize, IwarpConfig, IwarpConnector, IwarpListener};

async fn with(address: SocketAddr, config: IwarpConfig) -> (IwarpConnector, IwarpListener) {
    let listener = IwarpListener::bind(address, config.clone()).await.expect("bind");
    (IwarpConnector::new(config), listener)
}

fn ipv4() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

mod by_default {
    rpcrdma_proto::provider_conformance!(super::with(super::ipv4(), super::IwarpConfig::default()));
}

mod without_crc {
    use super::*;

    async fn make() -> (IwarpConnector, IwarpListener) {
        let mut config = IwarpConfig::default();
        config.crc = false;
        with(ipv4(), config).await
    }
    rpcrdma_proto::provider_conformance!(make());
}

mod smallest_fpdus_on_ipv6 {
    use super::*;

    async fn make() -> (IwarpConnector, IwarpListener) {
        let mut config = IwarpConfig::default();
        config.fpdu_size = FpduSize::Ulpdu(128);
        with((Ipv6Addr::LOCALHOST, 0).into(), config).await
    }
    rpcrdma_proto::provider_conformance!(make());
}
