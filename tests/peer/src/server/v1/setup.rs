//! Cases for servers: private data and remote invalidation (RFC 8797).

use super::{
    PART, Session,
    session::{INLINE, Sent},
};
use crate::{
    came::Came,
    case::{Case, Early, Finding, Steps},
    server::ServerUnderTest,
    v1::{CREDITS, Lists, message, parse_private_data, private_data},
};

pub(super) fn cases() -> Vec<Case<ServerUnderTest>> {
    let served = "a reply to a NULL call of 1000 bytes";
    vec![
        PART.steps(
            "v1/server/no-private-data",
            &["RFC 8797 5.1#1"],
            "a connection without private data",
            served,
            |server| async move { served_with(server, Vec::new()).await },
        ),
        PART.steps(
            "v1/server/private-data-magic",
            &["RFC 8797 5.2#1"],
            "private data whose first word is not the identifier of RFC 8797",
            served,
            |server| async move { served_with(server, changed(0)).await },
        ),
        PART.steps(
            "v1/server/private-data-version",
            &["RFC 8797 5.2#b"],
            "private data of version 255",
            served,
            |server| async move { served_with(server, changed(4)).await },
        ),
        PART.steps(
            "v1/server/private-data-flags",
            &["RFC 8797 4#2"],
            "private data with all reserved flags set",
            served,
            |server| async move {
                let mut data = private_data(false, INLINE, INLINE);
                data[5] = 0xfe;
                served_with(server, data).await
            },
        ),
        PART.steps(
            "v1/server/private-data-short",
            &["RFC 8797 5.2#b"],
            "the first seven of the eight bytes of private data",
            served,
            |server| async move { served_with(server, private_data(false, INLINE, INLINE)[..7].to_vec()).await },
        ),
        PART.steps(
            "v1/server/private-data-sizes",
            &["RFC 8797 4.2#a"],
            "private data with the smallest and with the largest sizes, 1024 and 262144 bytes",
            served,
            |server| async move {
                served_with(server.clone(), private_data(false, 1024, 1024)).await?;
                served_with(server, private_data(false, 256 << 10, 256 << 10)).await
            },
        ),
        PART.steps(
            "v1/server/own-private-data",
            &["RFC 8797 4#a", "RFC 8797 4#2"],
            "a connection with private data",
            "private data of the server whose reserved flags are zero (unusual: none)",
            own_private_data,
        ),
        PART.steps(
            "v1/server/no-remote-invalidation",
            &["RFC 8797 4.1#2"],
            "a call in a Read chunk, over a connection whose private data does not allow Send with Invalidate",
            "a reply by a plain Send",
            |server| async move { remote_invalidation(server, false).await },
        ),
        PART.steps(
            "v1/server/remote-invalidation",
            &["RFC 8797 4.1#1", "RFC 8797 4.1#2"],
            "a call in a Read chunk, over a connection whose private data allows Send with Invalidate",
            "a reply by a plain Send, or by one that invalidates the handle of the chunk if the server's private data has R",
            |server| async move { remote_invalidation(server, true).await },
        ),
    ]
}

fn changed(index: usize) -> Vec<u8> {
    let mut data = private_data(false, INLINE, INLINE);
    data[index] = 0xff;
    data
}

/// Connects with this private data, and checks that the server serves a NULL call of 1000 bytes.
async fn served_with(server: ServerUnderTest, private_data: Vec<u8>) -> Steps {
    let mut session = match Session::connect(&server, private_data).await {
        Ok(session) => session,
        Err(Early(finding)) => return Ok(Finding::wrong(finding.came)),
    };
    Ok(match session.hello().await {
        Ok(_) => {
            let (xid, mut message) = session.null();
            message.resize(1000, 0);
            match session.observe(&Sent::call((xid, message)), true).await {
                came @ Came::Reply(_) => Finding::conforming(came.to_string()),
                came => Finding::wrong(came.to_string()),
            }
        }
        Err(Early(finding)) => Finding::wrong(finding.came),
    })
}

async fn own_private_data(server: ServerUnderTest) -> Steps {
    let session = Session::open(&server).await?;
    let data = session.link.private_data.clone();
    Ok(match parse_private_data(&data) {
        Some((flag, send, receive)) if data[5] & !1 == 0 => {
            let flag = if flag { "with R" } else { "without R" };
            Finding::conforming(format!("{flag}, it sends {send} and receives {receive} bytes"))
        }
        Some(_) => Finding::wrong(format!("reserved flags: {:#x}", data[5])),
        None => Finding::unusual("no private data of RFC 8797, so messages have at most 1024 bytes"),
    })
}

async fn remote_invalidation(server: ServerUnderTest, allows: bool) -> Steps {
    let mut session = Session::connect(&server, private_data(allows, INLINE, INLINE)).await?;
    session.hello().await?;
    let has_flag = parse_private_data(&session.link.private_data).is_some_and(|(flag, ..)| flag);
    let (xid, call) = session.null_call();
    let lists = Lists::reads(0, &[session.link.expose(call)]);
    let sent = Sent::with_lists((xid, message(xid, CREDITS, &lists, None)), lists);
    let (came, arrived) = session.exchange(&sent, true).await;
    let (Came::Reply(_), Some(arrived)) = (&came, arrived) else { return Ok(Finding::wrong(came.to_string())) };
    Ok(match arrived.invalidated {
        None => Finding::conforming("a plain Send"),
        Some(handle) if !allows => Finding::wrong(format!("a Send that invalidates {handle:#x}")),
        Some(handle) if !sent.lists.handles().contains(&handle) => {
            Finding::wrong(format!("a Send that invalidates {handle:#x}, which is not a handle of the call"))
        }
        Some(_) if has_flag => Finding::conforming("a Send that invalidates the handle of the chunk"),
        Some(_) => Finding::unusual("a Send that invalidates the handle of the chunk, from a server without R"),
    })
}
