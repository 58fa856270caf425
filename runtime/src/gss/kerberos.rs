//! Kerberos version 5 through the GSS-API library of the system: MIT Kerberos or Heimdal.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use libgssapi::{
    context::{ClientCtx, CtxFlags, SecurityContext, ServerCtx},
    credential::{Cred, CredUsage},
    error::Error,
    name::Name,
    oid::{GSS_MECH_KRB5, GSS_NT_HOSTBASED_SERVICE, GSS_NT_KRB5_PRINCIPAL, OidSet},
};

use super::mechanism::{ClientMechanism, ContextSetup, GssContext, GssError, ServerMechanism, SetupStep, major};

/// Kerberos credentials of the user that runs the process, for calls to one service.
///
/// The credentials come from the default credential cache (`KRB5CCNAME`), which `kinit` fills. They are read again for
/// each context, so that a renewed ticket is used.
#[derive(Debug, Clone)]
pub struct KerberosClient {
    service: String,
}

impl KerberosClient {
    /// Creates the credentials for calls to `service`, for example `nfs@server.example.com` for the principal
    /// `nfs/server.example.com`.
    #[must_use]
    pub fn new(service: impl Into<String>) -> Self {
        Self { service: service.into() }
    }
}

/// Kerberos credentials of a server.
///
/// The keys come from the default keytab (`KRB5_KTNAME`). They are read again for each context, so that a changed
/// keytab is used.
#[derive(Debug, Clone, Default)]
pub struct KerberosServer {
    service: Option<String>,
}

impl KerberosServer {
    /// Creates the credentials of a server that accepts clients of every service in its keytab.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Accepts only clients of `service`, for example `nfs@server.example.com`.
    #[must_use]
    pub fn service(mut self, service: impl Into<String>) -> Self {
        self.service = Some(service.into());
        self
    }
}

/// Returns the name of the local user for a Kerberos principal such as `alice@EXAMPLE.COM`.
///
/// The rules come from `krb5.conf` (`auth_to_local`, `auth_to_local_names`). Without rules, the name is the part before
/// the realm, if the realm is the default realm and the part has one component. May block.
///
/// # Errors
/// Fails if the principal is malformed, if no rule applies to it, or if the name of the local user is not UTF-8. A user
/// with the returned name need not exist.
pub fn local_user(principal: &str) -> Result<String, GssError> {
    let name = Name::new(principal.as_bytes(), Some(GSS_NT_KRB5_PRINCIPAL)).map_err(|error| convert(&error))?;
    let user = name.local_name(Some(GSS_MECH_KRB5)).map_err(|error| convert(&error))?;
    let user = String::from_utf8(user.to_vec());
    user.map_err(|_| GssError::new(major::FAILURE, "the name of the local user is not UTF-8"))
}

fn service_name(service: &str) -> Result<Name, GssError> {
    Name::new(service.as_bytes(), Some(GSS_NT_HOSTBASED_SERVICE)).map_err(|error| convert(&error))
}

fn acquire(name: Option<&Name>, usage: CredUsage) -> Result<Cred, GssError> {
    let kerberos = OidSet::singleton(GSS_MECH_KRB5).map_err(|error| convert(&error))?;
    Cred::acquire(name, None, usage, Some(&kerberos)).map_err(|error| convert(&error))
}

impl ClientMechanism for KerberosClient {
    fn begin(&self) -> Result<Box<dyn ContextSetup>, GssError> {
        let target = service_name(&self.service)?;
        let credentials = acquire(None, CredUsage::Initiate)?;
        let context = ClientCtx::new(Some(credentials), target, requested_flags(), Some(GSS_MECH_KRB5));
        Ok(Box::new(Initiator(Some(context))))
    }

    fn advice(&self, _major: u32, minor: u32) -> Option<&'static str> {
        // The major status alone does not say which side has no credentials.
        advice(major::FAILURE, minor)
    }
}

impl ServerMechanism for KerberosServer {
    fn begin(&self) -> Result<Box<dyn ContextSetup>, GssError> {
        let name = self.service.as_deref().map(service_name).transpose()?;
        let credentials = acquire(name.as_ref(), CredUsage::Accept)?;
        Ok(Box::new(Acceptor(Some(ServerCtx::new(Some(credentials))))))
    }
}

/// A context in creation at a client. `None` after its completion.
struct Initiator(Option<ClientCtx>);

/// A context in creation at a server. `None` after its completion.
struct Acceptor(Option<ServerCtx>);

impl ContextSetup for Initiator {
    fn step(&mut self, token: Option<&[u8]>) -> Result<SetupStep, GssError> {
        let context = self.0.as_mut().ok_or_else(is_over)?;
        let token = context.step(token, None).map_err(|error| convert(&error))?;
        let token = token.map(|token| token.to_vec());
        let context = self.0.take_if(|context| context.is_complete()).map(|context| {
            let peer = context.target_name();
            check_flags(context.flags().map_err(|error| convert(&error))?)?;
            KerberosContext::complete(context, peer)
        });
        Ok(SetupStep { token, context: context.transpose()? })
    }
}

impl ContextSetup for Acceptor {
    fn step(&mut self, token: Option<&[u8]>) -> Result<SetupStep, GssError> {
        let context = self.0.as_mut().ok_or_else(is_over)?;
        let token = context.step(token.unwrap_or_default(), None).map_err(|error| convert(&error))?;
        let token = token.map(|token| token.to_vec());
        let context = self.0.take_if(|context| context.is_complete()).map(|context| {
            let peer = context.source_name();
            KerberosContext::complete(context, peer)
        });
        Ok(SetupStep { token, context: context.transpose()? })
    }
}

/// Returns `true` if a message is encrypted: TOK_ID 05 04, and the flag Sealed (RFC 4121 §4.2.2, §4.2.6.2).
fn is_sealed(message: &[u8]) -> bool {
    matches!(message, [5, 4, flags, ..] if flags & 2 != 0)
}

fn not_sealed() -> GssError {
    GssError::new(major::DEFECTIVE_TOKEN, "the message is not encrypted")
}

/// Returns the properties that a client requests.
fn requested_flags() -> CtxFlags {
    // RFC 2203 §5.2.2: replay detection and sequencing are off.
    CtxFlags::GSS_C_MUTUAL_FLAG | CtxFlags::GSS_C_INTEG_FLAG | CtxFlags::GSS_C_CONF_FLAG
}

/// Checks the properties of a client's context. Fails if a requested property is missing, or if replay detection or
/// sequencing is on.
fn check_flags(flags: CtxFlags) -> Result<(), GssError> {
    // RFC 2203 §5.2.2: calls arrive in any order.
    let unwanted = CtxFlags::GSS_C_REPLAY_FLAG | CtxFlags::GSS_C_SEQUENCE_FLAG;
    if flags.contains(requested_flags()) && !flags.intersects(unwanted) {
        return Ok(());
    }
    Err(GssError::new(major::FAILURE, format!("the context has other properties than those requested: {flags:?}")))
}

fn is_over() -> GssError {
    GssError::new(major::FAILURE, "the creation of the context is over")
}

/// An established context.
///
/// The library allows no concurrent calls with one context, so each call waits for the lock. MIT Kerberos 1.20 encrypts
/// 60 MiB/s to 70 MiB/s with aes256-cts-hmac-sha384-192. Encrypting a body of 1 MiB thus holds the lock for about
/// 17 ms, and computing its checksum for 4 ms. Within a tokio runtime, no async task waits for the lock while a large
/// body is in progress ([`BlockingQueue`](crate::security::BlockingQueue)). A task may wait for short work of another
/// task.
struct KerberosContext {
    context: Mutex<Box<dyn SecurityContext + Send>>,
    peer: String,
    max_mic: usize,
    /// Maximum number of bytes that encryption adds to a message.
    overhead: u64,
}

impl KerberosContext {
    fn complete(
        mut context: impl SecurityContext + Send + 'static,
        peer: Result<Name, Error>,
    ) -> Result<Arc<dyn GssContext>, GssError> {
        let failed = |error| convert(&error);
        let peer = peer.and_then(|peer| peer.display_name()).map_err(failed)?;
        // Two principals must not become one name.
        let peer = String::from_utf8(peer.to_vec())
            .map_err(|_| GssError::new(major::FAILURE, "the name of the principal is not UTF-8"))?;
        // The lengths depend on the encryption type only (RFC 4121 §4.2.6).
        let max_mic = context.get_mic(&[]).map_err(failed)?.len();
        let overhead = context.wrap(true, &[]).map_err(failed)?.len() as u64;
        // Room for the padding of encryption types with blocks.
        let overhead = overhead.saturating_add(16);
        Ok(Arc::new(Self { context: Mutex::new(Box::new(context)), peer, max_mic, overhead }))
    }

    /// Calls the library, and locks the context for the duration of the call.
    fn with<T>(&self, call: impl FnOnce(&mut (dyn SecurityContext + Send)) -> Result<T, Error>) -> Result<T, GssError> {
        let mut context = self.context.lock().unwrap_or_else(PoisonError::into_inner);
        call(&mut **context).map_err(|error| convert(&error))
    }
}

impl GssContext for KerberosContext {
    fn get_mic(&self, message: &[u8]) -> Result<Vec<u8>, GssError> {
        self.with(|context| Ok(context.get_mic(message)?.to_vec()))
    }

    fn verify_mic(&self, message: &[u8], mic: &[u8]) -> Result<(), GssError> {
        self.with(|context| context.verify_mic(message, mic))
    }

    fn wrap(&self, message: &[u8]) -> Result<Vec<u8>, GssError> {
        let wrapped = self.with(|context| Ok(context.wrap(true, message)?.to_vec()))?;
        // The library does not report if it only signed the message.
        if is_sealed(&wrapped) { Ok(wrapped) } else { Err(not_sealed()) }
    }

    fn unwrap(&self, message: &[u8]) -> Result<Vec<u8>, GssError> {
        // The library also accepts a message that is only signed.
        if !is_sealed(message) {
            return Err(not_sealed());
        }
        self.with(|context| Ok(context.unwrap(message)?.to_vec()))
    }

    fn max_mic(&self) -> usize {
        self.max_mic
    }

    fn max_wrapped(&self, len: u64) -> u64 {
        len.saturating_add(self.overhead)
    }

    fn lifetime(&self) -> Option<Duration> {
        /// The lifetime of a context that does not expire: GSS_C_INDEFINITE (RFC 2744 appendix A).
        const UNLIMITED: Duration = Duration::from_secs(u32::MAX as u64);
        // The library fails for a context that has expired.
        let lifetime = self.with(|context| context.lifetime()).unwrap_or_default();
        (lifetime != UNLIMITED).then_some(lifetime)
    }

    fn peer(&self) -> &str {
        &self.peer
    }
}

impl fmt::Debug for KerberosContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KerberosContext").field("peer", &self.peer).finish_non_exhaustive()
    }
}

/// Converts an error of the library. Removes control characters from its message, and adds advice for the user.
fn convert(error: &Error) -> GssError {
    let mut message = error.to_string();
    message.retain(|character| !character.is_control());
    if let Some(advice) = advice(error.major.bits(), error.minor) {
        message = format!("{message}: {advice}");
    }
    GssError { major: error.major.bits(), minor: error.minor, message }
}

/// Returns advice for the user about an error with this major and minor status, if there is any.
fn advice(status: u32, minor: u32) -> Option<&'static str> {
    /// The first code of the table `krb5` of MIT Kerberos and Heimdal.
    const KRB5: i32 = -1_765_328_384;
    let code = minor.cast_signed().wrapping_sub(KRB5);
    let advice = match code {
        // KDC_ERR_C_PRINCIPAL_UNKNOWN
        6 => "the user is unknown to the KDC",
        // KDC_ERR_S_PRINCIPAL_UNKNOWN
        7 => "the service principal is unknown to the KDC, check the host name and that the KDC has the principal",
        // KRB_AP_ERR_TKT_EXPIRED
        32 => "the ticket has expired, run kinit",
        // KRB_AP_ERR_SKEW
        37 => "the clocks of client, server and KDC differ too much, synchronize them",
        // KRB5_CC_NOTFOUND, KRB5_FCC_NOFILE
        141 | 195 => "there is no ticket, run kinit",
        // KRB5_KDC_UNREACH
        156 => "no KDC can be reached, check krb5.conf and the network",
        // KRB5_KT_NOTFOUND
        181 => "the keytab has no key for the service",
        _ if status & major::ROUTINE_ERROR == major::NO_CRED => {
            "there are no credentials, run kinit or check the keytab"
        }
        _ if status & major::ROUTINE_ERROR == major::CREDENTIALS_EXPIRED => "the ticket has expired, run kinit",
        _ => return None,
    };
    Some(advice)
}

#[cfg(test)]
mod tests {
    use libgssapi::{context::CtxInfo, error::MajorFlags, oid::Oid, util::Buf};

    use super::*;

    /// The flag of an encrypted message: Sealed (RFC 4121 §4.2.2).
    const SEALED: u8 = 2;

    /// A fake context of the library. It does not encrypt messages, but puts the header of an encrypted message with
    /// these flags before them.
    struct Library {
        flags: u8,
        lifetime: Result<Duration, Error>,
    }

    fn bad_mic() -> Error {
        Error { major: MajorFlags::GSS_S_BAD_MIC, minor: 0 }
    }

    /// Returns a buffer of the library with these bytes. The buffer is the display form of a name, because the library
    /// returns the bytes of a name unchanged.
    fn buffer(bytes: &[u8]) -> Result<Buf, Error> {
        Name::new(bytes, None)?.display_name()
    }

    impl SecurityContext for Library {
        fn wrap(&mut self, encrypt: bool, message: &[u8]) -> Result<Buf, Error> {
            assert!(encrypt);
            buffer(&[&[5, 4, self.flags, 0xff][..], message].concat())
        }

        fn unwrap(&mut self, message: &[u8]) -> Result<Buf, Error> {
            message.get(4..).map_or(Err(bad_mic()), buffer)
        }

        fn get_mic(&mut self, _message: &[u8]) -> Result<Buf, Error> {
            buffer(b"checksum")
        }

        fn verify_mic(&mut self, _message: &[u8], mic: &[u8]) -> Result<(), Error> {
            if mic == b"checksum" { Ok(()) } else { Err(bad_mic()) }
        }

        fn lifetime(&self) -> Result<Duration, Error> {
            self.lifetime
        }

        fn info(&self) -> Result<CtxInfo, Error> {
            Err(bad_mic())
        }

        fn source_name(&self) -> Result<Name, Error> {
            Err(bad_mic())
        }

        fn target_name(&self) -> Result<Name, Error> {
            Err(bad_mic())
        }

        fn mechanism(&self) -> Result<Oid<'static>, Error> {
            Err(bad_mic())
        }

        fn flags(&self) -> Result<CtxFlags, Error> {
            Err(bad_mic())
        }

        fn local(&self) -> Result<bool, Error> {
            Ok(true)
        }

        fn open(&self) -> Result<bool, Error> {
            Ok(true)
        }

        fn is_complete(&self) -> bool {
            true
        }
    }

    fn context(flags: u8, lifetime: Result<Duration, Error>) -> Arc<dyn GssContext> {
        KerberosContext::complete(Library { flags, lifetime }, Name::new(b"alice@TEST", None)).unwrap()
    }

    /// RFC 4121 §4.2.2, §4.2.6.2: the library also returns and accepts messages that are only signed. The context
    /// refuses such messages.
    #[test]
    fn messages_are_encrypted() {
        for flags in 0..8 {
            let context = context(flags, Ok(Duration::ZERO));
            let message = [&[5, 4, flags, 0xff][..], b"message"].concat();
            if flags & SEALED != 0 {
                assert_eq!(context.wrap(b"message").unwrap(), message);
                assert_eq!(context.unwrap(&message).unwrap(), b"message");
            } else {
                assert_eq!(context.wrap(b"message").unwrap_err().major, major::DEFECTIVE_TOKEN);
                assert_eq!(context.unwrap(&message).unwrap_err().major, major::DEFECTIVE_TOKEN);
            }
        }
        let context = context(SEALED, Ok(Duration::ZERO));
        // The messages of GSS_GetMIC (RFC 4121 §4.2.6.1), of RFC 1964, and shorter ones.
        for other in [&[4, 4, SEALED, 0xff, 1][..], &[2, 1, SEALED, 0xff, 1], &[5, 4], &[]] {
            assert_eq!(context.unwrap(other).unwrap_err().major, major::DEFECTIVE_TOKEN, "{other:?}");
        }
        // The header, and room for padding.
        assert_eq!((context.max_wrapped(100), context.max_mic(), context.peer()), (120, 8, "alice@TEST"));
    }

    #[test]
    fn checksums_are_those_of_the_library() {
        let context = context(SEALED, Ok(Duration::ZERO));
        assert_eq!(context.get_mic(b"message").unwrap(), b"checksum");
        context.verify_mic(b"message", b"checksum").unwrap();
        let error = context.verify_mic(b"message", b"another checksum").unwrap_err();
        assert_eq!(error.major, major::BAD_MIC);
    }

    /// A context that never expires has the lifetime GSS_C_INDEFINITE (RFC 2744 appendix A). For an expired context,
    /// the library returns an error in place of a lifetime.
    #[test]
    fn lifetimes_are_those_of_the_library() {
        let expired = Error { major: MajorFlags::GSS_S_CONTEXT_EXPIRED, minor: 0 };
        let unlimited = Duration::from_secs(u32::MAX.into());
        let day = Duration::from_secs(86_400);
        for (of_library, lifetime) in [
            (Ok(day), Some(day)),
            (Ok(unlimited), None),
            (Ok(Duration::ZERO), Some(Duration::ZERO)),
            (Err(expired), Some(Duration::ZERO)),
        ] {
            assert_eq!(context(SEALED, of_library).lifetime(), lifetime);
        }
    }

    /// A name that is not UTF-8 is an error, so that two principals cannot become one name.
    #[test]
    fn names_are_utf_8() {
        for name in [Name::new(b"al\xffice@TEST", None), Err(bad_mic())] {
            let library = Library { flags: SEALED, lifetime: Ok(Duration::ZERO) };
            KerberosContext::complete(library, name).unwrap_err();
        }
    }

    #[test]
    fn errors_are_one_line_of_text() {
        // The library ends its message about an unknown minor status with a line feed.
        for (status, minor, text) in [
            (major::FAILURE, 99_999, "99999"),
            (major::NO_CRED, 0, "run kinit"),
            (major::CREDENTIALS_EXPIRED, 0, "run kinit"),
        ] {
            let error = convert(&Error { major: MajorFlags::from_bits_retain(status), minor });
            assert_eq!((error.major, error.minor), (status, minor));
            assert!(error.message.contains(text) && !error.message.contains('\n'), "{error:?}");
        }
    }

    #[test]
    fn servers_accept_the_services_of_their_settings() {
        assert_eq!(KerberosServer::new().service, None);
        assert_eq!(KerberosServer::new().service("nfs@server").service.unwrap(), "nfs@server");
    }

    #[test]
    fn errors_say_what_to_do() {
        let of = |code: i32| advice(major::FAILURE, code.cast_unsigned()).unwrap();
        // The values of krb5.h.
        assert!(of(-1_765_328_377).contains("service principal is unknown"));
        assert!(of(-1_765_328_352).contains("expired"));
        assert!(of(-1_765_328_347).contains("clocks"));
        assert!(of(-1_765_328_243).contains("no ticket"));
        assert!(of(-1_765_328_189).contains("no ticket"));
        assert!(of(-1_765_328_228).contains("no KDC"));
        assert!(of(-1_765_328_203).contains("keytab"));
        assert_eq!(advice(major::FAILURE, 0), None);
        for (status, text) in
            [(major::NO_CRED, "no credentials"), (major::CREDENTIALS_EXPIRED, "the ticket has expired")]
        {
            assert!(advice(status, 0).unwrap().contains(text));
        }
    }

    /// RFC 2203 §5.2.2: a client neither requests nor uses a context with replay detection or sequencing.
    #[test]
    fn replay_detection_and_sequencing_are_off() {
        let flags = requested_flags();
        check_flags(flags).unwrap();
        for unwanted in [CtxFlags::GSS_C_REPLAY_FLAG, CtxFlags::GSS_C_SEQUENCE_FLAG] {
            assert!(!flags.intersects(unwanted));
            check_flags(flags | unwanted).unwrap_err();
        }
        let others = CtxFlags::GSS_C_TRANS_FLAG | CtxFlags::GSS_C_PROT_READY_FLAG;
        check_flags(flags | others).unwrap();
        for needed in [CtxFlags::GSS_C_MUTUAL_FLAG, CtxFlags::GSS_C_INTEG_FLAG, CtxFlags::GSS_C_CONF_FLAG] {
            check_flags(flags - needed).unwrap_err();
        }
    }

    /// The status codes of a refusal come from the server. Missing credentials of the server thus give no advice about
    /// the user's credentials.
    #[test]
    fn refusals_of_the_server_say_what_to_do() {
        let client = KerberosClient::new("nfs@server");
        let advice = client.advice(major::FAILURE, (-1_765_328_347_i32).cast_unsigned());
        assert!(advice.unwrap().contains("clocks"));
        assert_eq!(client.advice(major::NO_CRED, 0), None, "the server's credentials, not the user's");
    }
}
