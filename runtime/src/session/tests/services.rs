//! Tests of [`ServiceRegistry`]: the look-up of services, duplicate services, and the limit on chunks.

use super::*;

fn version(program: u32, version: u32, max_chunks: u32) -> HookedService {
    HookedService::from(Arc::new(Version { program, version, max_chunks }) as Arc<dyn Service>)
}

/// A version of a program. Its only procedure returns the program and the version.
struct Version {
    program: u32,
    version: u32,
    max_chunks: u32,
}

impl Service for Version {
    fn program(&self) -> u32 {
        self.program
    }

    fn version(&self) -> u32 {
        self.version
    }

    fn name(&self) -> &'static str {
        "TEST"
    }

    fn max_chunks(&self) -> u32 {
        self.max_chunks
    }

    fn dispatch(&self, call: InboundCall) -> ReplyFuture {
        let length = 1000 * self.program + self.version;
        Box::pin(std::future::ready(answer::<Name>(call, |_| Ok(length))))
    }
}

fn registry(services: impl IntoIterator<Item = HookedService>) -> Result<ServiceRegistry, (u32, u32)> {
    ServiceRegistry::new(services, Arc::new(StandardAuthenticator), None)
}

/// RFC 5531 §9: a call of an unknown program gets PROG_UNAVAIL. A call of an unknown version gets PROG_MISMATCH with
/// the lowest and the highest version. The order in which the services were added does not matter.
#[test]
fn calls_find_their_service() {
    let services = [(8, 3), (7, 5), (9, 1), (7, 2), (7, 9), (6, 4)];
    for services in [services, {
        let mut other = services;
        other.reverse();
        other
    }] {
        let registry = registry(services.map(|(program, number)| version(program, number, 0))).unwrap();
        #[cfg(feature = "tls")]
        let null = |program, version| registry.null(program, version);
        #[cfg(feature = "tls")]
        assert_eq!(
            [null(7, 5), null(7, 6), null(5, 1)],
            [Ok(()), Err(RpcError::ProgramMismatch { low: 2, high: 9 }), Err(RpcError::ProgramUnavailable)]
        );
        let mut served = Served::with(Transport::Tcp, registry, ConnectionConfig::new());
        let mut call = |program, version| {
            let header = CallHeader::new(XID, program, version, Name::NUMBER);
            let (outcome, results) = served.reply(arrived(received(&message(&header, &[0; 4]))));
            outcome.map(|()| results.first_chunk().copied().map(u32::from_be_bytes).unwrap())
        };
        for (program, version) in services {
            assert_eq!(call(program, version), Ok(1000 * program + version));
        }
        for version in [0, 1, 3, 4, 6, 10, u32::MAX] {
            assert_eq!(call(7, version), Err(RpcError::ProgramMismatch { low: 2, high: 9 }), "{version}");
        }
        assert_eq!(call(8, 2), Err(RpcError::ProgramMismatch { low: 3, high: 3 }));
        for program in [0, 5, 10] {
            assert_eq!(call(program, 2), Err(RpcError::ProgramUnavailable), "{program}");
        }
    }
}

#[test]
fn services_are_different() {
    assert!(registry([version(7, 1, 0), version(7, 2, 0), version(8, 1, 0)]).is_ok());
    let twice = registry([version(7, 2, 0), version(8, 1, 0), version(7, 1, 0), version(7, 2, 0)]);
    assert_eq!(twice.err(), Some((7, 2)));
}

/// The limit on chunks is raised to the needs of the services, and is never lowered. By default, a service needs no
/// chunks.
#[test]
fn services_get_the_chunks_that_they_need() {
    assert_eq!(service(echo).max_chunks(), 0);
    for (needed, provided) in [([0, 3], 16), ([17, 1], 17), ([1, 200], 200)] {
        let mut config = ConnectionConfig::new().max_chunks(16).engine;
        registry([version(7, 1, needed[0]), version(7, 2, needed[1])]).unwrap().provide(&mut config);
        assert_eq!(config.max_chunks, provided, "{needed:?}");
    }
}
