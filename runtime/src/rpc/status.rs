//! The status of encoded replies.

/// Returns the error status of an encoded reply (RFC 5531 §9), or `None` if the call was successful.
#[inline]
pub(crate) fn encoded_error(reply: &[u8]) -> Option<&'static str> {
    // The status of the reply, the verifier, and the status of the call are 0: successful, with an empty verifier.
    if reply.first_chunk::<24>().is_some_and(|words| words[8..] == [0; 16]) {
        return None;
    }
    error_of(reply)
}

/// Reads the status of a reply that has an error or a verifier.
#[cold]
#[inline(never)]
fn error_of(reply: &[u8]) -> Option<&'static str> {
    let word = |at: usize| reply.get(at..)?.first_chunk().copied().map(u32::from_be_bytes);
    let stat = || {
        // The XID, the message type, and the status of the reply.
        match word(8)? {
            0 => {
                let verifier = (word(16)? as usize).checked_next_multiple_of(4)?;
                Some(match word(verifier.checked_add(20)?)? {
                    0 => None,
                    1 => Some("PROG_UNAVAIL"),
                    2 => Some("PROG_MISMATCH"),
                    3 => Some("PROC_UNAVAIL"),
                    4 => Some("GARBAGE_ARGS"),
                    _ => Some("SYSTEM_ERR"),
                })
            }
            _ => Some(Some(if word(12)? == 0 { "RPC_MISMATCH" } else { "AUTH_ERROR" })),
        }
    };
    // Replies are encoded locally, so that they are complete.
    stat().unwrap_or(Some("SYSTEM_ERR"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        rpc::{AuthStat, OpaqueAuth, ReplyHeader, RpcError},
        xdr::FlatSink,
    };

    fn encoded(header: &ReplyHeader) -> Vec<u8> {
        let mut message = Vec::new();
        header.encode(&mut FlatSink::new(&mut message)).unwrap();
        message
    }

    /// The status read from the bytes of a reply is that of its header, with verifiers of any length.
    #[test]
    fn status_of_encoded_replies() {
        let errors = [
            RpcError::ProgramUnavailable,
            RpcError::ProgramMismatch { low: 1, high: 2 },
            RpcError::ProcedureUnavailable,
            RpcError::GarbageArguments,
            RpcError::SystemError,
            RpcError::Unavailable,
            RpcError::HandlerTimedOut,
            RpcError::RpcMismatch { low: 2, high: 2 },
            RpcError::Authentication(AuthStat::AuthTooweak.into()),
        ];
        for len in [0, 1, 4, 37, 400] {
            let verifier = OpaqueAuth { flavor: 6, body: vec![0; len].into() };
            assert_eq!(encoded_error(&encoded(&ReplyHeader::success(7).with_verifier(verifier.clone()))), None);
            for error in errors {
                let header = ReplyHeader::failure(7, error).with_verifier(verifier.clone());
                assert_eq!(encoded_error(&encoded(&header)), Some(error.status()));
            }
        }
        assert_eq!(encoded_error(&[]), Some("SYSTEM_ERR"));
    }
}
