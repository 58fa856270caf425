//! Requests to the Kubernetes API that list and watch EndpointSlices.

use std::time::Duration;

use http_body_util::BodyExt as _;
use kube::{
    Client,
    api::{ListParams, Request, WatchParams},
    client::Body,
};
use serde::{Deserialize, de::DeserializeOwned};

use super::{
    error::KubernetesError,
    slices::{EndpointSlice, Metadata},
};

/// Time limit of the request for one page of a list, and of starting a watch.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The time after which the API server ends a watch, in seconds. The client then starts the next watch.
const WATCH_SECONDS: u32 = 240;
/// The time after which the client abandons a watch that the API server has not ended. The connection is then
/// considered lost.
const WATCH_TIMEOUT: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 30);
/// Maximum number of EndpointSlices in a page of a list.
const PAGE: u32 = 50;
/// Maximum number of pages to request for a list, including those requested before the list had to start over.
const MAX_PAGES: usize = 100;
/// Maximum length of a page of a list, in bytes.
const MAX_PAGE_LEN: usize = 32 << 20;
/// Maximum length of a watch event or an error response, in bytes. An object in etcd has at most 1.5 MiB.
const MAX_EVENT_LEN: usize = 4 << 20;
/// Maximum length of the API server's message in a [`KubernetesError`], in characters.
const MAX_MESSAGE_LEN: usize = 300;

/// A client of the Kubernetes API for the EndpointSlices of one Service.
pub(super) struct Api {
    client: Client,
    path: String,
    selector: String,
    service: String,
}

/// A page of a list of EndpointSlices.
#[derive(Deserialize)]
struct Page {
    metadata: Metadata,
    items: Option<Vec<EndpointSlice>>,
}

/// The type of a watch event. It determines the type of the object in the event.
#[derive(Deserialize)]
struct EventType {
    r#type: String,
}

/// The object of a watch event whose [`EventType`] is known.
#[derive(Deserialize)]
struct Event<T> {
    object: T,
}

/// The `Status` object with which the API server explains a failed request or the end of a watch.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    code: Option<u16>,
    message: Option<String>,
}

impl Status {
    fn refused(self, code: u16) -> KubernetesError {
        let message = self.message.unwrap_or_default();
        let message = message.chars().filter(|c| !c.is_control()).take(MAX_MESSAGE_LEN).collect();
        KubernetesError::Refused { code: self.code.unwrap_or(code), message }
    }
}

/// A change of the EndpointSlices, with the resource version after the change.
pub(super) enum Change {
    Set(EndpointSlice, String),
    /// The slice with this name was removed.
    Removed(String, String),
    /// The resource version has changed, but no slice has.
    Bookmark(String),
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, KubernetesError> {
    serde_json::from_slice(bytes).map_err(KubernetesError::request)
}

impl Api {
    pub(super) fn new(client: Client, namespace: &str, service: &str) -> Self {
        Self {
            client,
            path: format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"),
            selector: format!("kubernetes.io/service-name={service}"),
            service: format!("{namespace}/{service}"),
        }
    }

    /// Returns `NAMESPACE/SERVICE`.
    pub(super) fn service(&self) -> &str {
        &self.service
    }

    /// Reads all slices, page by page, and calls `found` for each slice. Returns the resource version of the list.
    ///
    /// If a page expires before it is read (status 410), the list starts over, and `found` is called again for slices
    /// of earlier pages. Fails if a request fails, or if the list has not ended after [`MAX_PAGES`] pages.
    pub(super) async fn list(&self, mut found: impl FnMut(EndpointSlice)) -> Result<String, KubernetesError> {
        let mut next: Option<String> = None;
        for _ in 0..MAX_PAGES {
            let is_first = next.is_none();
            let mut params = ListParams::default().labels(&self.selector).limit(PAGE);
            params.continue_token = next;
            let request = Request::new(&self.path).list(&params).map_err(KubernetesError::request)?;
            let page = limited(async {
                let body = self.begin(request.map(Body::from)).await?;
                parse::<Page>(&body.all(MAX_PAGE_LEN).await?)
            });
            let page = match page.await {
                // The server does not have the next page any more. The first one begins a newer list.
                Err(KubernetesError::Refused { code: 410, .. }) if !is_first => {
                    next = None;
                    continue;
                }
                page => page?,
            };
            page.items.into_iter().flatten().for_each(&mut found);
            next = page.metadata.next.filter(|token| !token.is_empty());
            if next.is_none() {
                return Ok(page.metadata.resource_version);
            }
        }
        Err(KubernetesError::request(format!("the list of EndpointSlices has more than {MAX_PAGES} pages")))
    }

    /// Starts a watch of the changes after the resource version `version`.
    pub(super) async fn watch(&self, version: &str) -> Result<Watch, KubernetesError> {
        let params = WatchParams::default().labels(&self.selector).timeout(WATCH_SECONDS);
        let request = Request::new(&self.path).watch(&params, version).map_err(KubernetesError::request)?;
        let reader = limited(self.begin(request.map(Body::from))).await?;
        Ok(Watch { reader, deadline: tokio::time::Instant::now() + WATCH_TIMEOUT })
    }

    /// Sends a request, and returns a reader of the response body. Fails with [`KubernetesError::Request`] if there is
    /// no response, and with [`KubernetesError::Refused`] if the response has an error status.
    async fn begin(&self, request: http::Request<Body>) -> Result<BodyReader, KubernetesError> {
        let response = self.client.send(request).await.map_err(KubernetesError::request)?;
        let code = response.status();
        let reader = BodyReader { body: response.into_body(), buffer: Vec::new(), searched: 0 };
        if code.is_success() {
            return Ok(reader);
        }
        // The reason is text for people, and may be missing.
        let status = match reader.all(MAX_EVENT_LEN).await {
            Ok(body) => parse::<Status>(&body).unwrap_or_default(),
            Err(_) => Status::default(),
        };
        Err(Status { code: None, ..status }.refused(code.as_u16()))
    }
}

/// Limits the time of a request to [`TIMEOUT`].
async fn limited<T>(request: impl Future<Output = Result<T, KubernetesError>>) -> Result<T, KubernetesError> {
    tokio::time::timeout(TIMEOUT, request).await.map_err(KubernetesError::request)?
}

/// A reader of a response body, as a whole or line by line.
struct BodyReader {
    body: Body,
    buffer: Vec<u8>,
    /// Number of bytes at the beginning of the buffer that are known to contain no line feed.
    searched: usize,
}

impl BodyReader {
    /// Reads the next part of the body into the buffer. Returns `false` at the end of the body.
    async fn more(&mut self) -> Result<bool, KubernetesError> {
        let Some(frame) = self.body.frame().await else { return Ok(false) };
        if let Some(data) = frame.map_err(KubernetesError::request)?.data_ref() {
            self.buffer.extend_from_slice(data);
        }
        Ok(true)
    }

    /// Reads the whole body. Fails if it has more than `max` bytes.
    async fn all(mut self, max: usize) -> Result<Vec<u8>, KubernetesError> {
        while self.more().await? {
            if self.buffer.len() > max {
                return Err(KubernetesError::request(format!("the answer has more than {max} bytes")));
            }
        }
        Ok(self.buffer)
    }

    /// Reads a line, including its line feed. Returns `None` at the end of the body, or if the connection is lost. An
    /// incomplete line is dropped, because the next watch repeats its event. Fails if a line is longer than
    /// [`MAX_EVENT_LEN`].
    async fn line(&mut self) -> Result<Option<Vec<u8>>, KubernetesError> {
        loop {
            if let Some(end) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') {
                let rest = self.buffer.split_off(self.searched + end + 1);
                self.searched = 0;
                return Ok(Some(std::mem::replace(&mut self.buffer, rest)));
            }
            self.searched = self.buffer.len();
            if self.searched > MAX_EVENT_LEN {
                return Err(KubernetesError::request(format!("an event has more than {MAX_EVENT_LEN} bytes")));
            }
            if !matches!(self.more().await, Ok(true)) {
                return Ok(None);
            }
        }
    }
}

/// A watch of the EndpointSlices of a Service.
pub(super) struct Watch {
    reader: BodyReader,
    deadline: tokio::time::Instant,
}

impl Watch {
    /// Waits for the next change. Returns `None` if the watch has ended or [`WATCH_TIMEOUT`] has passed. Another watch
    /// can then continue after the last change. Fails if the API server reports an error, or an event is too long or
    /// cannot be parsed. Events of unknown types are skipped.
    pub(super) async fn next(&mut self) -> Result<Option<Change>, KubernetesError> {
        loop {
            let Ok(line) = tokio::time::timeout_at(self.deadline, self.reader.line()).await else { return Ok(None) };
            let Some(line) = line? else { return Ok(None) };
            if line.trim_ascii().is_empty() {
                continue;
            }
            let EventType { r#type } = parse(&line)?;
            if r#type == "ERROR" {
                let Event::<Status> { object } = parse(&line)?;
                return Err(object.refused(500));
            }
            let Event::<EndpointSlice> { object } = parse(&line)?;
            let version = object.metadata.resource_version.clone();
            return match r#type.as_str() {
                "ADDED" | "MODIFIED" => Ok(Some(Change::Set(object, version))),
                "DELETED" => Ok(Some(Change::Removed(object.metadata.name, version))),
                "BOOKMARK" => Ok(Some(Change::Bookmark(version))),
                _ => continue,
            };
        }
    }
}
