#![allow(clippy::unwrap_used)]

use std::time::Duration;

use super::Version;
use crate::{
    server::{BindError, DuplicateRequests, LimitScope, Limits, Server, ServerBuilder},
    service::ProcedureId,
};

fn builder() -> ServerBuilder {
    let [first, second] = [(7, 1), (7, 2)].map(|(program, version)| Version { program, version });
    Server::builder().service(first).service(second).listen("tcp://127.0.0.1:0")
}

/// A server without settings closes idle connections, and limits its calls only by their memory.
#[tokio::test]
async fn defaults() {
    let server = builder().bind().await.unwrap();
    let shared = &server.handle().0;
    let connection = &shared.callbacks.connection;
    assert_eq!(connection.idle_timeout, Some(Duration::from_secs(360)));
    assert_eq!(connection.first_call_timeout, Some(Duration::from_secs(120)));
    assert_eq!((shared.grace, shared.budget.limit()), (Duration::from_secs(30), 1 << 30));
    assert_eq!(shared.callbacks.call_timeout, Some(Duration::from_secs(30)));
    assert!(shared.runtimes.is_none() && shared.duplicates.is_empty() && shared.limiters.is_empty());
    // The services need more chunks than the settings allow.
    assert_eq!(connection.engine.max_chunks, 1002);
}

/// The settings reach the connections. A call gets no more memory than its share of the server's memory.
#[tokio::test]
async fn settings() {
    let seconds = Duration::from_secs;
    for (bytes, is_less) in [(1 << 40, true), (1 << 10, false)] {
        let config = crate::config::ConnectionConfig::new().max_record(bytes);
        let server = builder()
            .connection(config)
            .max_memory(1 << 20)
            .max_fetched(bytes)
            .idle_timeout(seconds(1))
            .first_call_timeout(seconds(2))
            .connect_timeout(seconds(3))
            .drain_timeout(seconds(4))
            .callback_timeout(seconds(5))
            .duplicate_requests(7, DuplicateRequests::new())
            .limits(LimitScope::Program(7), Limits::new().concurrency(3))
            .limits(ProcedureId::new(7, 2, 1), Limits::new().concurrency(4))
            .runtimes([tokio::runtime::Handle::current()]);
        let server = server.bind().await.unwrap();
        let shared = &server.handle().0;
        let connection = &shared.callbacks.connection;
        let share = shared.budget.max_of_call();
        assert!(share < 1 << 20 && share > 1 << 10);
        let expected = if is_less { share } else { bytes };
        assert_eq!((connection.engine.max_fetched, connection.stream.max_record), (expected, expected));
        assert_eq!(
            (connection.idle_timeout, connection.first_call_timeout, connection.connect_timeout),
            (Some(seconds(1)), Some(seconds(2)), seconds(3))
        );
        assert_eq!((shared.grace, shared.callbacks.call_timeout), (seconds(4), Some(seconds(5))));
        assert_eq!(server.handle().duplicate_requests().len(), 1);
        assert_eq!(server.handle().limits().len(), 2);
        assert!(shared.runtimes.is_some());
        #[cfg(feature = "metrics")]
        assert!(shared.measured.is_some());
    }
}

#[tokio::test]
async fn settings_that_do_not_fit() {
    let error = async |builder: ServerBuilder| builder.bind().await.map(|_| ()).unwrap_err();
    let no_listener = Server::builder().service(Version { program: 7, version: 1 });
    assert!(matches!(error(no_listener).await, BindError::NoListener));
    let twice = builder().service(Version { program: 7, version: 2 });
    assert!(matches!(error(twice).await, BindError::DuplicateService { program: 7, version: 2 }));
    for program in [6, 8] {
        let cached = builder().duplicate_requests(program, DuplicateRequests::new());
        assert!(matches!(error(cached).await, BindError::UnknownProgram { program: unknown } if unknown == program));
        let limited = builder().limits(ProcedureId::new(program, 1, 1), Limits::new());
        assert!(matches!(error(limited).await, BindError::UnknownProgram { program: unknown } if unknown == program));
    }
    assert!(matches!(
        error(builder().limits(LimitScope::Server, Limits::new().per_caller(0))).await,
        BindError::Config(_)
    ));
    assert!(matches!(error(builder().credits(0)).await, BindError::Config(_)));
}
