//! Protected bodies (RFC 2203 §5.3.2).

use proptest::prelude::*;

use super::*;
use crate::{
    gss::{
        body::BodyProtection,
        mechanism::major,
        wire::{RpcGssDataT, RpcGssIntegData, RpcGssPrivData},
    },
    security::{BlockingQueue, Protection, ProtectionLevel},
};

/// Creates a context, and returns the client's side and the server's side of it.
fn contexts() -> (Arc<dyn GssContext>, Arc<dyn GssContext>) {
    let mut initiator = ClientMechanism::begin(&client()).unwrap();
    let mechanism = InsecureTestMechanism::new(KEY, "nfs@server");
    let mut acceptor = ServerMechanism::begin(&mechanism).unwrap();
    let first = initiator.step(None).unwrap().token;
    let accepted = acceptor.step(first.as_deref()).unwrap();
    let initiated = initiator.step(accepted.token.as_deref()).unwrap();
    (initiated.context.unwrap(), accepted.context.unwrap())
}

fn both(sequence: u32, level: ProtectionLevel) -> (Arc<dyn Protection>, Arc<dyn Protection>) {
    let (client, server) = contexts();
    let of = |context| BodyProtection::of(context, &BlockingQueue::new(), sequence, level).unwrap();
    (of(&client), of(&server))
}

/// RFC 2203 §5.3.2.1: the service `none` leaves arguments and results as they are.
#[test]
fn service_none_protects_no_body() {
    assert!(BodyProtection::of(&contexts().0, &BlockingQueue::new(), 1, ProtectionLevel::Authentication).is_none());
}

/// RFC 2203 §5.3.2.2, §5.3.2.3: bodies have the bytes that the generated encoders produce.
#[test]
fn bodies_have_the_form_of_the_specification() {
    let (context, _) = contexts();
    for body in [&b"sixteen bytes..."[..], b"", b"odd"].map(Bytes::from_static) {
        let data: Bytes = [&encode_to_bytes(&RpcGssDataT { seq_num: 77 }).unwrap()[..], &body].concat().into();
        let wrap =
            |level| BodyProtection::of(&context, &BlockingQueue::new(), 77, level).unwrap().wrap(body.clone()).unwrap();
        let checksum = context.get_mic(&data).unwrap().into();
        let integrity = RpcGssIntegData { databody_integ: data.clone(), checksum };
        assert_eq!(wrap(ProtectionLevel::Integrity), encode_to_bytes(&integrity).unwrap());
        let privacy = RpcGssPrivData { databody_priv: context.wrap(&data).unwrap().into() };
        assert_eq!(wrap(ProtectionLevel::Privacy), encode_to_bytes(&privacy).unwrap());
    }
}

/// RFC 2203 §5.3.3.1: the sequence number in a body is the sequence number of the credential.
#[test]
fn bodies_belong_to_one_call() {
    let (client, server) = contexts();
    for level in [ProtectionLevel::Integrity, ProtectionLevel::Privacy] {
        for (sent, expected) in [(5, 6), (6, 5), (0, 1), (1, 0x0100_0001)] {
            let of = |context, sequence| BodyProtection::of(context, &BlockingQueue::new(), sequence, level).unwrap();
            let wrapped = of(&client, sent).wrap(Bytes::from_static(b"data")).unwrap();
            let error = of(&server, expected).unwrap(wrapped).unwrap_err().to_string();
            assert!(error.contains(&format!("sequence number {sent}, expected {expected}")), "{error}");
        }
    }
}

/// A context whose checksums and encrypted messages are one byte longer than those of the wrapped context, so that they
/// need padding.
#[derive(Debug)]
struct OddLengths(Arc<dyn GssContext>);

impl OddLengths {
    fn longer(mut bytes: Vec<u8>) -> Vec<u8> {
        bytes.push(7);
        bytes
    }

    fn shorter(bytes: &[u8]) -> Result<&[u8], GssError> {
        bytes.strip_suffix(&[7]).ok_or_else(|| GssError::new(major::DEFECTIVE_TOKEN, "the last byte is missing"))
    }
}

impl GssContext for OddLengths {
    fn get_mic(&self, message: &[u8]) -> Result<Vec<u8>, GssError> {
        self.0.get_mic(message).map(Self::longer)
    }

    fn verify_mic(&self, message: &[u8], mic: &[u8]) -> Result<(), GssError> {
        self.0.verify_mic(message, Self::shorter(mic)?)
    }

    fn wrap(&self, message: &[u8]) -> Result<Vec<u8>, GssError> {
        self.0.wrap(message).map(Self::longer)
    }

    fn unwrap(&self, message: &[u8]) -> Result<Vec<u8>, GssError> {
        self.0.unwrap(Self::shorter(message)?)
    }

    fn max_mic(&self) -> usize {
        self.0.max_mic() + 1
    }

    fn max_wrapped(&self, len: u64) -> u64 {
        self.0.max_wrapped(len) + 1
    }

    fn lifetime(&self) -> Option<std::time::Duration> {
        self.0.lifetime()
    }

    fn peer(&self) -> &str {
        self.0.peer()
    }
}

/// RFC 2203 §5.3.2.2, §5.3.2.3: checksums and encrypted bodies of any length are padded.
#[test]
fn checksums_and_encrypted_bodies_are_padded() {
    let (client, server) = contexts();
    let (client, server): (Arc<dyn GssContext>, Arc<dyn GssContext>) =
        (Arc::new(OddLengths(client)), Arc::new(OddLengths(server)));
    let body = Bytes::from_static(b"sixteen bytes...");
    let data: Bytes = [&encode_to_bytes(&RpcGssDataT { seq_num: 9 }).unwrap()[..], &body].concat().into();
    let integrity = RpcGssIntegData { databody_integ: data.clone(), checksum: client.get_mic(&data).unwrap().into() };
    let privacy = RpcGssPrivData { databody_priv: client.wrap(&data).unwrap().into() };
    for (level, expected) in [
        (ProtectionLevel::Integrity, encode_to_bytes(&integrity).unwrap()),
        (ProtectionLevel::Privacy, encode_to_bytes(&privacy).unwrap()),
    ] {
        let of = |context| BodyProtection::of(context, &BlockingQueue::new(), 9, level).unwrap();
        let wrapped = of(&client).wrap(body.clone()).unwrap();
        assert_eq!(wrapped, expected, "{level:?}");
        assert_eq!(wrapped.len() as u64, of(&client).max_wrapped(body.len() as u64), "{level:?}");
        assert_eq!(of(&server).unwrap(wrapped).unwrap(), body, "{level:?}");
    }
}

/// A changed byte, a missing end and trailing bytes are detected.
#[test]
fn changed_bodies_are_refused() {
    for level in [ProtectionLevel::Integrity, ProtectionLevel::Privacy] {
        let (client, server) = both(5, level);
        let wrapped = client.wrap(Bytes::from_static(b"four words here!")).unwrap();
        for byte in 0..wrapped.len() {
            let mut changed = wrapped.to_vec();
            changed[byte] ^= 0x10;
            server.unwrap(changed.into()).unwrap_err();
        }
        for len in 0..wrapped.len() {
            server.unwrap(wrapped.slice(..len)).unwrap_err();
        }
        server.unwrap([&wrapped[..], &[0; 4]].concat().into()).unwrap_err();
        assert_eq!(server.unwrap(wrapped).unwrap(), "four words here!");
    }
}

proptest! {
    /// Bodies of any number of words survive wrapping and unwrapping. Their wrapped length is exactly `max_wrapped`,
    /// from which a client computes the memory for a reply.
    #[test]
    fn bodies_survive(words in 0..500_usize, sequence in any::<u32>(), private in any::<bool>()) {
        let level = if private { ProtectionLevel::Privacy } else { ProtectionLevel::Integrity };
        let (client, server) = both(sequence, level);
        let body: Bytes = (0..words * 4).map(|byte| byte as u8).collect::<Vec<_>>().into();
        let wrapped = server.wrap(body.clone()).unwrap();
        prop_assert_eq!(wrapped.len() as u64, server.max_wrapped(body.len() as u64));
        prop_assert_eq!(client.unwrap(wrapped).unwrap(), body);
    }

    /// Arbitrary received bodies are refused without a panic.
    #[test]
    fn any_body_is_handled(body in any::<Vec<u8>>(), private in any::<bool>()) {
        let level = if private { ProtectionLevel::Privacy } else { ProtectionLevel::Integrity };
        prop_assert!(both(1, level).1.unwrap(body.into()).is_err());
    }
}
