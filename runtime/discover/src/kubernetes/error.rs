//! The error type of service discovery with Kubernetes.

use std::{error::Error, sync::Arc};

use rpcrdma::error::UrlError;

/// An error of a `KubernetesService`: an invalid or missing setting, or a failed request.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum KubernetesError {
    /// The URL scheme of a port, or an option after it, is invalid.
    #[error(transparent)]
    Url(UrlError),
    /// The name of a Service or a namespace is invalid.
    #[error("`{name}` is not a name of Kubernetes, expected lower case letters, digits, `-` and `.`")]
    Name {
        /// The invalid name.
        name: String,
    },
    /// No client configuration was found, or it is invalid.
    #[error("cannot configure the Kubernetes client, run in a pod with a service account or set KUBECONFIG")]
    Config(#[source] Arc<dyn Error + Send + Sync>),
    /// A request to the API server failed, or the response cannot be read.
    #[error("cannot read the EndpointSlices from the Kubernetes API server")]
    Request(#[source] Arc<dyn Error + Send + Sync>),
    /// The API server refused a request, or reported an error in a watch.
    #[error("the Kubernetes API server did not show EndpointSlices: status {code}, {message}{}", advice(*code))]
    Refused {
        /// The HTTP status, or the status code in the error of a watch.
        code: u16,
        /// The message of the API server. It may be empty.
        message: String,
    },
}

fn advice(code: u16) -> &'static str {
    match code {
        401 | 403 => ", grant the account the verbs list and watch for endpointslices in discovery.k8s.io",
        _ => "",
    }
}

impl KubernetesError {
    pub(super) fn request(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Request(error.into().into())
    }
}
