//! Service discovery with Kubernetes: lists and watches of EndpointSlices from an HTTP server in the test. The objects
//! have the form that Kubernetes 1.33 gives them.
#![allow(clippy::unwrap_used, missing_docs)]

mod api_server;
#[path = "../failing_calls/mod.rs"]
mod failing_calls;

use std::{collections::BTreeSet, time::Duration};

use api_server::{ApiServer, Exchange};
use failing_calls::fails_with;
use futures_util::StreamExt as _;
use rpcrdma::client::discover::Servers;
use rpcrdma_discover::{KubernetesError, KubernetesService};
use rpcrdma_proto::ErrorChain;

/// Time limit of each wait in the tests. It is reached only if something hangs.
const HANG: Duration = Duration::from_secs(60);

/// Returns a page of a list, as JSON. `next` is the token of the next page, or empty on the last page.
fn list(version: &str, next: &str, slices: &[String]) -> String {
    let next = if next.is_empty() { String::new() } else { format!(r#","continue":"{next}","remainingItemCount":1"#) };
    let items = slices.join(",");
    format!(
        r#"{{"kind":"EndpointSliceList","apiVersion":"discovery.k8s.io/v1",
        "metadata":{{"resourceVersion":"{version}"{next}}},"items":[{items}]}}"#
    )
}

/// Returns an endpoint of a pod, as JSON. `conditions` is JSON as well.
fn pod(address: &str, uid: &str, conditions: &str) -> String {
    format!(
        r#"{{"addresses":["{address}"],"conditions":{conditions},"nodeName":"node-{uid}","targetRef":{{"kind":"Pod",
        "name":"blobs-{uid}","namespace":"prod","uid":"{uid}"}},"zone":"zone-a"}}"#
    )
}

fn ready(address: &str, uid: &str) -> String {
    pod(address, uid, r#"{"ready":true,"serving":true,"terminating":false}"#)
}

const PORTS: &str =
    r#"[{"name":"metrics","protocol":"TCP","port":9090},{"name":"iwarp","protocol":"TCP","port":20100}]"#;

/// Returns an EndpointSlice, as JSON. `ports` is JSON as well.
fn slice_with(name: &str, version: &str, family: &str, endpoints: &[String], ports: &str) -> String {
    let endpoints = endpoints.join(",");
    format!(
        r#"{{"addressType":"{family}","apiVersion":"discovery.k8s.io/v1","endpoints":[{endpoints}],"kind":"EndpointSlice",
        "metadata":{{"annotations":{{"endpoints.kubernetes.io/last-change-trigger-time":"2026-11-28T01:00:00Z"}},
        "creationTimestamp":"2026-11-27T10:00:00Z","generateName":"blobs-","generation":7,
        "labels":{{"endpointslice.kubernetes.io/managed-by":"endpointslice-controller.k8s.io","kubernetes.io/service-name":"blobs"}},
        "managedFields":[{{"apiVersion":"discovery.k8s.io/v1","fieldsType":"FieldsV1","fieldsV1":{{"f:endpoints":{{}},"f:ports":{{}}}},
        "manager":"kube-controller-manager","operation":"Update","time":"2026-11-28T01:00:00Z"}}],"name":"{name}","namespace":"prod",
        "ownerReferences":[{{"apiVersion":"v1","blockOwnerDeletion":true,"controller":true,"kind":"Service","name":"blobs",
        "uid":"0d4e2c51-7b0f-4b3e-9a55-9f1f63b0a001"}}],"resourceVersion":"{version}","uid":"3b9f2f0e-{name}"}},"ports":{ports}}}"#
    )
}

fn slice(name: &str, version: &str, endpoints: &[String]) -> String {
    slice_with(name, version, "IPv4", endpoints, PORTS)
}

fn bookmark(version: &str) -> String {
    format!(
        r#"{{"kind":"EndpointSlice","apiVersion":"discovery.k8s.io/v1","metadata":{{"resourceVersion":"{version}",
        "creationTimestamp":null}},"addressType":"","endpoints":null,"ports":null}}"#
    )
}

/// Returns the object of an ERROR event, which is also the body of an error response.
fn status(code: u16, reason: &str, message: &str) -> String {
    format!(
        r#"{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure","message":"{message}","reason":"{reason}",
        "code":{code}}}"#
    )
}

fn blobs() -> KubernetesService {
    KubernetesService::new("blobs").unwrap()
}

/// Starts to follow `service`, and answers the first list request with `slices` at resource version 100.
async fn follow(api: &mut ApiServer, service: KubernetesService, slices: &[String]) -> Servers {
    let servers = tokio::spawn(service.client(api.client()).servers());
    api.next_list().await.answer(200, list("100", "", slices));
    servers.await.unwrap().unwrap()
}

async fn next(servers: &mut Servers) -> Vec<String> {
    let list: BTreeSet<_> = tokio::time::timeout(HANG, servers.next()).await.expect("no change").unwrap();
    list.into_iter().collect()
}

/// Waits for the watch request after version 100, and returns the stream for its events.
async fn watch(api: &mut ApiServer) -> api_server::Stream {
    api.next_watch("100").await.stream()
}

#[tokio::test]
async fn changes_are_followed() {
    let mut api = ApiServer::start().await;
    let first = [slice("blobs-a", "90", &[ready("10.0.0.1", "1")]), slice("blobs-b", "91", &[ready("10.0.0.2", "2")])];
    let mut servers = follow(&mut api, blobs(), &first).await;
    assert_eq!(next(&mut servers).await, ["iwarp://10.0.0.1:20100", "iwarp://10.0.0.2:20100"]);
    let watched = api.next_watch("100").await;
    let path = "/apis/discovery.k8s.io/v1/namespaces/prod/endpointslices?";
    assert!(watched.target.starts_with(path), "{}", watched.target);
    assert!(watched.target.contains("labelSelector=kubernetes.io%2Fservice-name%3Dblobs"), "{}", watched.target);
    let stream = watched.stream();
    stream.event("ADDED", &slice("blobs-c", "101", &[ready("10.0.0.3", "3")]));
    assert_eq!(
        next(&mut servers).await,
        ["iwarp://10.0.0.1:20100", "iwarp://10.0.0.2:20100", "iwarp://10.0.0.3:20100"]
    );
    stream.event("MODIFIED", &slice("blobs-a", "102", &[ready("10.0.0.4", "4"), ready("10.0.0.5", "5")]));
    assert_eq!(next(&mut servers).await.len(), 4);
    stream.event("DELETED", &slice("blobs-b", "103", &[]));
    assert_eq!(
        next(&mut servers).await,
        ["iwarp://10.0.0.3:20100", "iwarp://10.0.0.4:20100", "iwarp://10.0.0.5:20100"]
    );
    // An event of a type that is not known, and an empty line.
    stream.event("REORDERED", &slice("blobs-a", "104", &[]));
    stream.send("\n");
    // The API server ends the watch in order. The next one begins after a bookmark, without a list.
    stream.event("BOOKMARK", &bookmark("120"));
    drop(stream);
    let stream = api.next_watch("120").await.stream();
    stream.event("DELETED", &slice("blobs-c", "121", &[]));
    assert_eq!(next(&mut servers).await.len(), 2);
    // The task ends with the list.
    drop(servers);
    tokio::time::timeout(HANG, stream.closed()).await.unwrap();
}

/// Pods that are not ready or are terminating are not listed. Pods without known conditions are listed.
#[tokio::test]
async fn conditions_of_pods() {
    let mut api = ApiServer::start().await;
    let pods = [
        ready("10.0.0.1", "1"),
        pod("10.0.0.2", "2", r#"{"ready":false,"serving":false,"terminating":false}"#),
        pod("10.0.0.3", "3", r#"{"ready":false,"serving":true,"terminating":true}"#),
        pod("10.0.0.4", "4", "{}"),
        pod("10.0.0.5", "5", r#"{"ready":null,"serving":null,"terminating":null}"#),
        // publishNotReadyAddresses makes a terminating pod ready.
        pod("10.0.0.6", "6", r#"{"ready":true,"serving":true,"terminating":true}"#),
        r#"{"addresses":["10.0.0.7"],"conditions":null}"#.to_owned(),
    ];
    let mut servers = follow(&mut api, blobs(), &[slice("blobs-a", "90", &pods)]).await;
    let urls = [1, 4, 5, 7].map(|n| format!("iwarp://10.0.0.{n}:20100"));
    assert_eq!(next(&mut servers).await, urls);
    let stream = watch(&mut api).await;
    stream.event("MODIFIED", &slice("blobs-a", "101", &pods[1..3]));
    assert_eq!(next(&mut servers).await, Vec::<String>::new());
}

/// IPv4 and IPv6 slices are used, and FQDN slices are not. A pod in slices of both families is one server, with its
/// IPv4 address if that is known.
#[tokio::test]
async fn address_families() {
    let mut api = ApiServer::start().await;
    let slices = [
        slice("blobs-4", "90", &[ready("10.0.0.1", "1"), ready("10.0.0.2", "2")]),
        slice_with("blobs-6", "91", "IPv6", &[ready("fd00::2", "2"), ready("fd00::3", "3")], PORTS),
        slice_with("blobs-name", "92", "FQDN", &[ready("pod.example", "9")], PORTS),
    ];
    let mut servers = follow(&mut api, blobs(), &slices).await;
    let urls = ["iwarp://10.0.0.1:20100", "iwarp://10.0.0.2:20100", "iwarp://[fd00::3]:20100"];
    assert_eq!(next(&mut servers).await, urls);
    let stream = watch(&mut api).await;
    stream.event("DELETED", &slice("blobs-4", "101", &[]));
    assert_eq!(next(&mut servers).await, ["iwarp://[fd00::2]:20100", "iwarp://[fd00::3]:20100"]);
}

/// By default, a port is used if its `appProtocol`, or its name up to the first `-`, is a scheme. A port selected by
/// name has the scheme and the options that the client sets. Pods without a valid port are not listed.
#[tokio::test]
async fn ports() {
    let named = |name: &str, port: u32| format!(r#"{{"name":"{name}","port":{port},"protocol":"TCP"}}"#);
    let with_protocol =
        |name: &str, app: &str, port: u32| format!(r#"{{"name":"{name}","appProtocol":"{app}","port":{port}}}"#);
    let of = |ports: &[String]| format!("[{}]", ports.join(","));
    let by_scheme = KubernetesService::new("blobs").unwrap();
    let by_name = |name: &str, scheme: &str| KubernetesService::new("blobs").unwrap().port(name, scheme).unwrap();
    let metrics = named("metrics", 9090);
    for (service, ports, expected) in [
        (&by_scheme, of(&[metrics.clone(), named("iwarp-blobs", 1)]), Some("iwarp://10.0.0.1:1")),
        (&by_scheme, of(&[named("tcp-blobs", 2), named("iwarp-blobs", 1)]), Some("iwarp://10.0.0.1:1")),
        (&by_scheme, of(&[named("tcp", 2), metrics.clone()]), Some("tcp://10.0.0.1:2?name=blobs.prod.svc")),
        (&by_scheme, of(&[with_protocol("blobs", "iwarp", 3), metrics.clone()]), Some("iwarp://10.0.0.1:3")),
        // The protocol of the port decides, unless it is no scheme.
        (&by_scheme, of(&[with_protocol("iwarp", "tcp", 4)]), Some("tcp://10.0.0.1:4?name=blobs.prod.svc")),
        (&by_scheme, of(&[with_protocol("iwarp", "http", 4)]), Some("iwarp://10.0.0.1:4")),
        (&by_scheme, of(std::slice::from_ref(&metrics)), None),
        (&by_scheme, of(&[named("iwarp", 0), named("iwarp-x", 65536)]), None),
        (&by_scheme, "null".to_owned(), None),
        (&by_scheme, r#"[{"name":"iwarp","port":null}]"#.to_owned(), None),
        (&by_scheme, r#"[{"port":7}]"#.to_owned(), None),
        (
            &by_name("metrics", "iwarp?crc=off"),
            of(&[named("iwarp", 1), metrics]),
            Some("iwarp://10.0.0.1:9090?crc=off"),
        ),
        (&by_name("", "tcp?tls=off&name=a"), r#"[{"port":7}]"#.to_owned(), Some("tcp://10.0.0.1:7?tls=off&name=a")),
    ] {
        let mut api = ApiServer::start().await;
        let slices = [slice_with("blobs-a", "90", "IPv4", &[ready("10.0.0.1", "1")], &ports)];
        let mut servers = follow(&mut api, service.clone(), &slices).await;
        assert_eq!(next(&mut servers).await, Vec::from_iter(expected), "{ports}");
    }
    let error = by_scheme.clone().port("blobs", "gopher").unwrap_err();
    assert!(error.to_string().contains("unknown scheme"), "{error}");
}

/// If the API server no longer has the changes since the client's resource version (status 410), the client lists all
/// slices again. The servers of slices that were removed in the meantime disappear from the list of servers.
#[tokio::test]
async fn lists_again_after_status_410() {
    let mut api = ApiServer::start().await;
    let first = [slice("blobs-a", "90", &[ready("10.0.0.1", "1")]), slice("blobs-b", "91", &[ready("10.0.0.2", "2")])];
    let mut servers = follow(&mut api, blobs(), &first).await;
    assert_eq!(next(&mut servers).await.len(), 2);
    // In the stream.
    let stream = watch(&mut api).await;
    stream.event("ERROR", &status(410, "Expired", "too old resource version: 100 (250)"));
    drop(stream);
    let relist = api.next_list().await;
    assert!(!relist.target.contains("resourceVersion"), "the newest list: {}", relist.target);
    relist.answer(200, list("250", "", &[slice("blobs-a", "240", &[ready("10.0.0.3", "3")])]));
    assert_eq!(next(&mut servers).await, ["iwarp://10.0.0.3:20100"]);
    // As the answer to the request.
    api.next_watch("250").await.answer(410, status(410, "Expired", "too old resource version"));
    api.next_list().await.answer(200, list("300", "", &[]));
    assert_eq!(next(&mut servers).await, Vec::<String>::new());
    api.next_watch("300").await.stream();
}

/// No event is lost if the connection is lost in the middle of a line. The watch continues after the last whole event.
#[tokio::test]
async fn a_connection_is_lost() {
    let mut api = ApiServer::start().await;
    let first = [slice("blobs-a", "90", &[ready("10.0.0.1", "1")])];
    let mut servers = follow(&mut api, blobs(), &first).await;
    assert_eq!(next(&mut servers).await.len(), 1);
    let stream = watch(&mut api).await;
    let two = slice("blobs-b", "101", &[ready("10.0.0.2", "2")]);
    let three = slice("blobs-c", "102", &[ready("10.0.0.3", "3")]);
    stream.event("ADDED", &two);
    assert_eq!(next(&mut servers).await.len(), 2);
    let line = format!(r#"{{"type":"ADDED","object":{three}}}"#).replace('\n', "");
    stream.send(&line[..line.len() / 2]);
    stream.cut();
    // No list is needed.
    let stream = api.next_watch("101").await.stream();
    // The rest of the first line would be no event.
    stream.send(&line);
    stream.send("\n");
    assert_eq!(next(&mut servers).await.len(), 3);
    // A line without an end, and the end of the body.
    stream.send(&line[..100]);
    drop(stream);
    api.next_watch("102").await.stream();
}

/// Events are read whether they arrive byte by byte or two at once.
#[tokio::test]
async fn a_slow_stream() {
    let mut api = ApiServer::start().await;
    let mut servers = follow(&mut api, blobs(), &[]).await;
    assert_eq!(next(&mut servers).await, Vec::<String>::new());
    let stream = watch(&mut api).await;
    let object = slice("blobs-a", "101", &[ready("10.0.0.1", "1")]).replace('\n', "");
    let line = format!("{{\"type\":\"ADDED\",\"object\":{object}}}\n");
    for byte in line.bytes() {
        stream.send(char::from(byte).encode_utf8(&mut [0; 4]));
        tokio::task::yield_now().await;
    }
    assert_eq!(next(&mut servers).await, ["iwarp://10.0.0.1:20100"]);
    let [two, three] = [2, 3].map(|n| {
        let object = slice(&format!("blobs-{n}"), &format!("10{n}"), &[ready(&format!("10.0.0.{n}"), &n.to_string())]);
        format!("{{\"type\":\"ADDED\",\"object\":{}}}\n", object.replace('\n', ""))
    });
    stream.send(&(two + &three));
    while next(&mut servers).await.len() < 3 {}
}

/// A list of several pages is read page by page. If the second page has expired, the list starts over.
#[tokio::test]
async fn pages() {
    let mut api = ApiServer::start().await;
    let servers = tokio::spawn(blobs().client(api.client()).servers());
    let page = |n: u8| [slice(&format!("blobs-{n}"), "90", &[ready(&format!("10.0.0.{n}"), &n.to_string())])];
    let first = api.next_list().await;
    assert!(first.target.contains("limit=") && !first.target.contains("continue="), "{}", first.target);
    first.answer(200, list("100", "token1", &page(1)));
    let second = api.next_list().await;
    assert!(second.target.contains("continue=token1"), "{}", second.target);
    second.answer(410, status(410, "Expired", "The provided continue parameter is too old"));
    let again = api.next_list().await;
    assert!(!again.target.contains("continue="), "{}", again.target);
    again.answer(200, list("200", "token2", &page(1)));
    api.next_list().await.answer(200, list("200", "token3", &page(2)));
    api.next_list().await.answer(200, list("200", "", &page(3)));
    let mut servers = servers.await.unwrap().unwrap();
    assert_eq!(next(&mut servers).await.len(), 3);
    api.next_watch("200").await.stream();
}

/// An error of the first list is returned. After a later error, the servers stay as they are, and the client lists the
/// slices again. Invalid names are refused.
#[tokio::test]
async fn errors() {
    let refused = async |answer: fn(Exchange)| {
        let mut api = ApiServer::start().await;
        let servers = tokio::spawn(blobs().client(api.client()).servers());
        answer(api.next().await);
        servers.await.unwrap().unwrap_err()
    };
    let error = refused(|list| list.answer(403, status(403, "Forbidden", "endpointslices is forbidden"))).await;
    assert!(matches!(&error, KubernetesError::Refused { code: 403, .. }), "{error:?}");
    let said = error.to_string();
    assert!(said.contains("endpointslices is forbidden") && said.contains("grant the account"), "{said}");
    let error = refused(|list| list.answer(500, "<html>broken</html>")).await;
    assert!(matches!(&error, KubernetesError::Refused { code: 500, .. }), "{error:?}");
    let error = refused(|list| list.answer(200, "[]")).await;
    assert!(matches!(&error, KubernetesError::Request(_)), "{error:?}");
    let error = refused(|list| list.stream().cut()).await;
    assert!(matches!(&error, KubernetesError::Request(_)), "{error:?}");
    let nobody = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
    let error =
        KubernetesService::new("blobs").unwrap().client(nobody.try_into().unwrap()).servers().await.unwrap_err();
    assert!(ErrorChain(&error).to_string().contains("onnection refused"), "{}", ErrorChain(&error).to_string());
    for name in ["", "Blobs", "a/b", "../secrets", "a?b", &"a".repeat(300)] {
        assert!(matches!(KubernetesService::new(name), Err(KubernetesError::Name { .. })), "{name}");
        assert!(matches!(KubernetesService::new("a").unwrap().namespace(name), Err(KubernetesError::Name { .. })));
    }

    let mut api = ApiServer::start().await;
    let mut servers =
        follow(&mut api, blobs().namespace("stage").unwrap(), &[slice("a", "90", &[ready("10.0.0.1", "1")])]).await;
    assert_eq!(next(&mut servers).await.len(), 1);
    let refused = api.next_watch("100").await;
    assert!(refused.target.contains("/namespaces/stage/"), "{}", refused.target);
    refused.answer(500, "");
    api.next_list().await.answer(500, "");
    api.next_list().await.answer(200, list("110", "", &[slice("a", "105", &[ready("10.0.0.2", "2")])]));
    // There was no list in between.
    assert_eq!(next(&mut servers).await, ["iwarp://10.0.0.2:20100"]);
    // An event that cannot be read.
    let stream = api.next_watch("110").await.stream();
    stream.send("{\"type\":\"ADDED\",\"object\":7}\n");
    api.next_list().await.answer(200, list("120", "", &[]));
    assert_eq!(next(&mut servers).await, Vec::<String>::new());
}

/// The error of a call contains the error of the API server.
#[tokio::test]
async fn errors_of_calls_have_the_error_of_kubernetes() {
    let mut api = ApiServer::start().await;
    let servers = follow(&mut api, blobs(), &[]).await;
    let refusing = async {
        loop {
            api.next().await.answer(500, status(500, "InternalError", "etcd has no leader"));
        }
    };
    tokio::select! {
        () = refusing => {}
        () = fails_with(servers, "did not show EndpointSlices: status 500, etcd has no leader") => {}
    }
}

/// At most 1000 endpoints of a slice are used. Invalid endpoints and a slice with an overlong name are skipped. After a
/// line without an end or a list without an end, the client lists the slices again.
#[tokio::test]
async fn hostile_answers() {
    let mut api = ApiServer::start().await;
    let pods: Vec<_> = (0..5000).map(|n| ready(&format!("10.1.{}.{}", n / 250, n % 250), &n.to_string())).collect();
    let nonsense = [
        ready("not an address", "1"),
        ready("10.0.0.1:80", "2"),
        ready("10.0.0.1?tls=off", "3"),
        r#"{"addresses":null}"#.to_owned(),
        r#"{"addresses":[]}"#.to_owned(),
        "{}".to_owned(),
        ready("10.0.0.1", &"u".repeat(5000)),
    ];
    let slices = [slice("a", "90", &pods), slice("b", "91", &nonsense), slice(&"n".repeat(300), "92", &pods[4000..])];
    let mut servers = follow(&mut api, blobs(), &slices).await;
    let found = next(&mut servers).await;
    assert_eq!(found.len(), 1001, "1000 of a slice, and one that is valid of the other");
    assert!(found.contains(&"iwarp://10.0.0.1:20100".to_owned()));
    // A line without an end.
    let stream = watch(&mut api).await;
    let piece = " ".repeat(1 << 20);
    for _ in 0..6 {
        stream.send(&piece);
    }
    api.next_list().await.answer(200, list("110", "", &[]));
    assert_eq!(next(&mut servers).await, Vec::<String>::new());
    // Pages without an end.
    api.next_watch("110").await.answer(410, "");
    for _ in 0..100 {
        api.next_list().await.answer(200, list("120", "more", &[]));
    }
    let after = api.next_list().await;
    assert!(!after.target.contains("continue="), "a new list: {}", after.target);
}

/// The client uses TLS and a token, as its configuration requires, and refuses the certificate of another authority.
#[tokio::test]
async fn tls() {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
    use tokio_rustls::rustls::{ServerConfig, crypto::ring, pki_types::PrivateKeyDer};

    let authority = || {
        let key = KeyPair::generate().unwrap();
        let mut ca = CertificateParams::new([]).unwrap();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = ca.self_signed(&key).unwrap();
        (certificate.der().to_vec(), Issuer::new(ca, key))
    };
    let (trusted, issuer) = authority();
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    let config = ServerConfig::builder_with_provider(ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], PrivateKeyDer::Pkcs8(key.serialize_der().into()))
        .unwrap();
    let mut api = ApiServer::start_with_tls(std::sync::Arc::new(config).into()).await;
    let client = |ca: Vec<u8>| {
        let mut config = api.config();
        config.root_cert = Some(vec![ca]);
        config.auth_info.token = Some("t0ken".to_owned().into());
        kube::Client::try_from(config).unwrap()
    };
    let blobs = KubernetesService::new("blobs").unwrap();
    let error = blobs.clone().client(client(authority().0)).servers().await.unwrap_err();
    assert!(ErrorChain(&error).to_string().contains("certificate"), "{}", ErrorChain(&error).to_string());
    let servers = tokio::spawn(blobs.client(client(trusted)).servers());
    let first = api.next_list().await;
    assert_eq!(first.authorization.as_deref(), Some("Bearer t0ken"));
    first.answer(200, list("100", "", &[slice("a", "90", &[ready("10.0.0.1", "1")])]));
    assert_eq!(next(&mut servers.await.unwrap().unwrap()).await, ["iwarp://10.0.0.1:20100"]);
}
