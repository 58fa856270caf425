//! Cases for clients: calls with chunks, READ and WRITE of NFS 3.

use super::{Call, End, GRANT, PART, ServedSession as _, Session, must_fail, must_succeed, nfs};
use crate::{
    case::{Case, Finding, Steps},
    client::ClientUnderTest,
    link::Segment,
    rpc,
    v1::{Lists, message},
};

pub(super) fn cases() -> Vec<Case<ClientUnderTest>> {
    [reads(), writes()].into_iter().flatten().collect()
}

/// Returns `true` if the call is a READ with a Write chunk.
fn is_read(call: &Call) -> bool {
    call.is(nfs::READ) && call.lists.writes.first().is_some_and(|chunk| !chunk.is_empty())
}

/// Creates a case that replies to a READ with a faulty Write list, or with the data inline, although the data is in the
/// Write chunk. A correct reply with SYSTEM_ERR follows, so the client must report an error.
macro_rules! faulty_read {
    ($id:literal, $rules:expr, $sent:literal, $build:expr) => {
        PART.steps(
            $id,
            $rules,
            concat!($sent, ", and then a correct reply with SYSTEM_ERR"),
            "the call fails",
            |client| async move {
                let mut session = Session::accept(&client).await?;
                let call = session.until("READ with a Write chunk", is_read).await?;
                let Some((results, data)) = nfs::read(&call.args) else {
                    return Ok(Finding::wrong("a READ whose arguments are malformed"));
                };
                session.place(&call, &data);
                let writes = call.filled(data.len() as u32);
                let build: fn(Vec<Vec<Segment>>, Vec<u8>, Vec<u8>) -> (Vec<Vec<Segment>>, Vec<u8>) = $build;
                let (writes, results) = build(writes, results, data);
                let payload = rpc::reply(call.xid, &results);
                session.link.send(&message(call.xid, GRANT, &Lists::writes(writes), Some(&payload)));
                session.fail(&call);
                Ok(must_fail(session.finish_failing(call.xid).await))
            },
        )
    };
}

fn reads() -> Vec<Case<ClientUnderTest>> {
    vec![
        PART.steps(
            "v1/client/read",
            &["RFC 8166 3.4.6#1", "RFC 8166 3.4.6.1#a"],
            "correct replies, with the data of READ in the Write chunk",
            "a READ whose Write chunk has room for the data, and the client succeeds",
            read,
        ),
        faulty_read!(
            "v1/client/read-other-handle",
            &["RFC 8166 4.5#3", "RFC 8166 3.4.6#2"],
            "a reply to READ whose Write chunk has another handle",
            |mut writes, results, _| {
                writes[0][0].handle ^= 0x5500;
                (writes, results)
            }
        ),
        faulty_read!(
            "v1/client/read-chunk-too-long",
            &["RFC 8166 4.5#3", "RFC 8166 3.4.6#2"],
            "a reply to READ whose Write chunk is 2147483648 bytes longer than that of the call",
            |mut writes, results, _| {
                writes[0][0].len |= 1 << 31;
                (writes, results)
            }
        ),
        faulty_read!(
            "v1/client/read-chunk-too-short",
            &["RFC 8166 3.4.6.2#3"],
            "a reply to READ whose Write chunk is 4 bytes shorter than the data",
            |mut writes, results, _| {
                let used = writes[0].iter_mut().rfind(|segment| segment.len > 4);
                if let Some(last) = used {
                    last.len -= 4;
                }
                (writes, results)
            }
        ),
        faulty_read!(
            "v1/client/read-more-segments",
            &["RFC 8166 4.5#3", "RFC 8166 3.4.6#2"],
            "a reply to READ whose Write chunk has one segment more, of the length zero",
            |mut writes, results, _| {
                let more = writes[0][0].part(0, 0);
                writes[0].push(more);
                (writes, results)
            }
        ),
        faulty_read!(
            "v1/client/read-data-inline",
            &["RFC 8166 6.1#5"],
            "a reply to READ with the data inline, and the Write chunk unused",
            |mut writes, results, data| {
                writes.iter_mut().flatten().for_each(|segment| segment.len = 0);
                let mut inline = [results, data].concat();
                inline.resize(inline.len().next_multiple_of(4), 0);
                inline.truncate(3000);
                (writes, inline)
            }
        ),
        PART.steps(
            "v1/client/read-chunk-of-another-call",
            &["RFC 8166 4.5#3", "RFC 8166 3.4.6#2"],
            "two calls of READ in flight whose data is placed, a reply to the first one that names the Write chunk of the second one, and \
             then a correct reply to the first one, with SYSTEM_ERR",
            "the first call fails",
            chunk_of_another_call,
        ),
        PART.steps(
            "v1/client/memory-after-reply",
            &["RFC 8166 4.4.1#a"],
            "an RDMA Write to the Write chunk of a READ that has been answered, after the client's next call",
            "the end of the connection",
            memory_after_reply,
        ),
    ]
}

async fn read(client: ClientUnderTest) -> Steps {
    let mut session = Session::accept(&client).await?;
    let call = session.until("READ with a Write chunk", is_read).await?;
    let (_, count) =
        nfs::read_args(&call.args).ok_or_else(|| Finding::wrong("a READ whose arguments are malformed"))?;
    let room: u64 = call.lists.writes[0].iter().map(|segment| u64::from(segment.len)).sum();
    if room < count.into() {
        return Ok(Finding::wrong(format!("a READ of {count} bytes with a Write chunk of {room} bytes")));
    }
    session.serve(&call).await;
    Ok(must_succeed(session.finish().await))
}

async fn chunk_of_another_call(client: ClientUnderTest) -> Steps {
    let mut session = Session::accept(&client).await?;
    let first = session.until("READ with a Write chunk", is_read).await?;
    let deadline = session.deadline();
    let second = loop {
        match session.call(deadline).await {
            Ok(call) if is_read(&call) => break call,
            Ok(call) => session.serve(&call).await,
            Err(why) => return Ok(Finding::not_supported(format!("no second READ while the first one waits: {why}"))),
        }
    };
    let (results, data) = nfs::read(&first.args).unwrap_or_default();
    session.place(&first, &data);
    session.place(&second, &data);
    let payload = rpc::reply(first.xid, &results);
    let writes = second.filled(data.len() as u32);
    session.link.send(&message(first.xid, GRANT, &Lists::writes(writes), Some(&payload)));
    session.fail(&first);
    session.serve(&second).await;
    Ok(must_fail(session.finish_failing(first.xid).await))
}

async fn memory_after_reply(client: ClientUnderTest) -> Steps {
    let mut session = Session::accept(&client).await?;
    let call = session.until("READ with a Write chunk", is_read).await?;
    session.serve(&call).await;
    let deadline = session.deadline();
    // The next call was perhaps made before the reply to the first one. The one after its reply is later.
    for _ in 0..2 {
        match session.call(deadline).await {
            Ok(next) => session.serve(&next).await,
            Err(why) => return Ok(Finding::not_supported(format!("no later call: {why}"))),
        }
    }
    let place = call.lists.writes[0][0].part(0, 8);
    session.link.write(place, vec![0x55; 8]);
    match session.call(session.deadline()).await {
        Ok(call) => {
            session.serve(&call).await;
            Ok(match session.finish().await {
                End::Succeeded => Finding::wrong("the client went on"),
                End::Failed => Finding::conforming("the connection ended"),
                End::Ended(reason) => Finding::conforming(reason),
                End::Waits => Finding::wrong("the client waits"),
            })
        }
        // A client that has finished closes the connection in an orderly way.
        Err(why) if why.contains("closed by") => Ok(Finding::not_supported("the client had finished")),
        Err(why) if why.starts_with("the connection ended") => Ok(Finding::conforming(why)),
        Err(why) => Ok(Finding::not_supported(why)),
    }
}

fn writes() -> Vec<Case<ClientUnderTest>> {
    vec![PART.steps(
        "v1/client/write",
        &["RFC 8166 3.4.5#1", "RFC 8166 3.4.5#2", "RFC 8166 3.4.5.2#1"],
        "correct replies",
        "a WRITE whose Read chunk is at the position of the data, a multiple of four, and has its length (unusual: with padding)",
        write,
    )]
}

async fn write(client: ClientUnderTest) -> Steps {
    let mut session = Session::accept(&client).await?;
    let is_write = |call: &Call| call.is(nfs::WRITE) && call.lists.reads.iter().any(|(position, _)| *position > 0);
    let call = session.until("WRITE with a Read chunk", is_write).await?;
    let reads: Vec<_> = call.lists.reads.iter().filter(|(position, _)| *position > 0).collect();
    let position = reads[0].0;
    // The data is the last item of the arguments, behind its length.
    let expected = call.args_at + call.args.len() as u32;
    let len = rpc::to_words(&call.args).last().copied().unwrap_or_default();
    let total: u32 = reads.iter().map(|(_, segment)| segment.len).sum();
    Ok(match () {
        () if reads.iter().any(|(other, _)| *other != position) => {
            Finding::wrong("Read segments of one item with different positions")
        }
        () if position != expected => Finding::wrong(format!("the position {position}, not {expected}")),
        () if total == len => {
            session.serve(&call).await;
            must_succeed(session.finish().await)
        }
        () if total == len.next_multiple_of(4) => Finding::unusual(format!("{total} bytes for {len}, with padding")),
        () => Finding::wrong(format!("{total} bytes for {len}")),
    })
}
