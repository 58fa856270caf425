#![allow(clippy::unwrap_used)]

use std::{collections::BTreeMap, sync::Arc};

use super::service;
use crate::{
    server::{
        DuplicateRequests, LimitScope, Limits,
        duplicates::{ServiceDuplicates, caches},
        hooks::ServerHooks,
        limits::{Limiter, ServiceLimits},
    },
    service::ProcedureId,
};

/// A cache covers the procedures of its program that are not idempotent, unless the settings specify otherwise.
/// Procedure 0 is never covered.
#[test]
fn covered_procedures() {
    let cover = |(program, version, procedure), is_covered| {
        move |settings: DuplicateRequests| settings.cover(ProcedureId::new(program, version, procedure), is_covered)
    };
    let settings = [
        cover((7, 1, 0), true),
        cover((7, 1, 1), true),
        cover((7, 1, 2), true),
        cover((7, 1, 3), false),
        cover((7, 2, 4), false),
        cover((8, 1, 5), false),
    ];
    let settings = settings.into_iter().fold(DuplicateRequests::new(), |settings, cover| cover(settings));
    let services = [service(7, 1), service(7, 2), service(8, 1), service(9, 1)];
    let caches = caches(&services, [(7, settings), (8, DuplicateRequests::new())].into()).unwrap();
    for (service, covered) in services.iter().zip([
        Some([false, true, true, false, true, true]),
        Some([false, true, false, true, false, true]),
        Some([false, true, false, true, true, true]),
        None,
    ]) {
        let duplicates = ServiceDuplicates::new(&**service, &caches);
        let found = duplicates.map(|duplicates| [0, 1, 2, 3, 4, 5].map(|number| duplicates.covers(&**service, number)));
        assert_eq!(found, covered, "{}.{}", service.program(), service.version());
    }
    assert_eq!(super::super::duplicates::caches(&services, [(6, DuplicateRequests::new())].into()).err(), Some(6));
}

/// If the server, a program and a procedure have limits, only the most specific limits apply to a call.
#[test]
fn limits_of_procedures() {
    let scopes = [
        LimitScope::Server,
        LimitScope::Program(7),
        ProcedureId::new(7, 1, 0).into(),
        ProcedureId::new(7, 1, 3).into(),
        ProcedureId::new(7, 2, 1).into(),
        ProcedureId::new(9, 1, 1).into(),
    ];
    let limiters: BTreeMap<_, _> =
        scopes.map(|scope| (scope, Arc::new(Limiter::new(scope, Limits::new().concurrency(1))))).into();
    let found = |program, version, is_exempt| {
        let limits = ServiceLimits::new(&*service(program, version), &limiters, is_exempt)?;
        Some([0, 1, 2, 3].map(|number| limits.find(number).map(|limiter| limiter.stats().scope)))
    };
    let [server, program, null, third, first, exempted] = scopes.map(Some);
    assert_eq!(found(7, 1, false), Some([null, program, program, third]));
    assert_eq!(found(7, 2, false), Some([None, first, program, program]));
    assert_eq!(found(8, 1, false), Some([None, server, server, server]));
    assert_eq!(found(8, 1, true), None);
    assert_eq!(found(9, 1, true), Some([None, exempted, None, None]));
}

/// Without layers, a service has hooks only if a cache, limit or observer applies to it.
#[test]
fn services_with_hooks() {
    let services = [service(7, 1), service(8, 1)];
    let cached = caches(&services, [(7, DuplicateRequests::new())].into()).unwrap();
    let scope = LimitScope::Program(7);
    let limited = BTreeMap::from([(scope, Arc::new(Limiter::new(scope, Limits::new())))]);
    let unlimited = BTreeMap::new();
    for (caches, limiters, expected) in [
        (&[][..], &unlimited, [false, false]),
        (&cached[..], &unlimited, [true, false]),
        (&[], &limited, [true, false]),
    ] {
        let hooks = ServerHooks {
            caches,
            limiters,
            exempt: &[],
            #[cfg(feature = "tower")]
            layers: None,
            #[cfg(feature = "introspection")]
            observed: &[],
        };
        let found = services.each_ref().map(|service| hooks.of(Arc::clone(service)).hooks.is_some());
        assert_eq!(found, expected);
    }
    #[cfg(feature = "introspection")]
    {
        let observed = crate::introspection::ObservedCalls::of(&services[..1]);
        let hooks = ServerHooks {
            caches: &[],
            limiters: &unlimited,
            exempt: &[],
            #[cfg(feature = "tower")]
            layers: None,
            observed: &observed,
        };
        for (program, version, expected) in [(7, 1, true), (7, 2, false), (8, 1, false)] {
            assert_eq!(hooks.of(service(program, version)).hooks.is_some(), expected);
        }
    }
}
