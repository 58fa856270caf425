//! Work requests, built in chains that are posted in one call.

use std::ptr;

use super::{
    ffi::{
        self, bind_mw_t, bind_mw_tso_union_t, ibv_access_flags as access, ibv_mw_bind_info, ibv_send_flags as flag,
        ibv_send_wr, ibv_sge, ibv_wr_opcode as opcode, imm_data_invalidated_rkey_union_t, qp_type_t, rdma_t, wr_t,
        xrc_t,
    },
    objects::Qp,
};

/// A range of local memory for a work request, with the key of its registration. The key is 0 for inline data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct LocalSegment {
    pub(super) address: u64,
    pub(super) len: u32,
    pub(super) lkey: u32,
}

/// A work request. Its pointers must refer to live objects until it has completed; the owners of the objects guarantee
/// that.
#[derive(Debug, Clone, Copy)]
pub(super) enum PreparedRequest {
    Send { local: LocalSegment, invalidate: Option<u32>, solicited: bool },
    Write { local: LocalSegment, remote: u64, rkey: u32 },
    Read { local: LocalSegment, remote: u64, rkey: u32 },
    Bind { window: *mut ffi::ibv_mw, rkey: u32, region: *mut ffi::ibv_mr, address: u64, len: u64, write: bool },
    Invalidate { rkey: u32 },
}

/// A chain of work requests, which are posted in one call.
#[derive(Default)]
pub(super) struct RequestChain {
    requests: Vec<ibv_send_wr>,
    segments: Vec<ibv_sge>,
}

// SAFETY: the pointers are set and used within one call of `post`. Those to windows and regions refer to objects that
// may be used from any thread.
unsafe impl Send for RequestChain {}

impl RequestChain {
    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.requests.clear();
        self.segments.clear();
    }

    /// Appends a request. `inline` is `true` if the data is copied into the work request.
    pub(super) fn push(&mut self, id: u64, request: PreparedRequest, inline: bool) {
        let local = match request {
            PreparedRequest::Send { local, .. }
            | PreparedRequest::Write { local, .. }
            | PreparedRequest::Read { local, .. } => local,
            PreparedRequest::Bind { .. } | PreparedRequest::Invalidate { .. } => LocalSegment::default(),
        };
        // Some devices check the address even if the length is 0, so no address is given.
        let num_sge = i32::from(local.len > 0);
        let mut wr = ibv_send_wr {
            wr_id: id,
            next: ptr::null_mut(),
            sg_list: ptr::null_mut(),
            num_sge,
            opcode: opcode::IBV_WR_SEND,
            send_flags: if inline && local.len > 0 { flag::IBV_SEND_INLINE.0 } else { 0 },
            imm_data_invalidated_rkey_union: imm_data_invalidated_rkey_union_t { imm_data: 0 },
            wr: wr_t { rdma: rdma_t { remote_addr: 0, rkey: 0 } },
            qp_type: qp_type_t { xrc: xrc_t { remote_srqn: 0 } },
            bind_mw_tso_union: bind_mw_tso_union_t { bind_mw: no_bind() },
        };
        match request {
            PreparedRequest::Send { invalidate, solicited, .. } => {
                if let Some(rkey) = invalidate {
                    wr.opcode = opcode::IBV_WR_SEND_WITH_INV;
                    wr.imm_data_invalidated_rkey_union = imm_data_invalidated_rkey_union_t { invalidated_rkey: rkey };
                }
                if solicited {
                    wr.send_flags |= flag::IBV_SEND_SOLICITED.0;
                }
            }
            PreparedRequest::Write { remote, rkey, .. } => {
                wr.opcode = opcode::IBV_WR_RDMA_WRITE;
                wr.wr = wr_t { rdma: rdma_t { remote_addr: remote, rkey } };
            }
            PreparedRequest::Read { remote, rkey, .. } => {
                wr.opcode = opcode::IBV_WR_RDMA_READ;
                wr.wr = wr_t { rdma: rdma_t { remote_addr: remote, rkey } };
            }
            PreparedRequest::Bind { window, rkey, region, address, len, write } => {
                wr.opcode = opcode::IBV_WR_BIND_MW;
                let rights = if write { access::IBV_ACCESS_REMOTE_WRITE } else { access::IBV_ACCESS_REMOTE_READ };
                let bind_info = ibv_mw_bind_info { mr: region, addr: address, length: len, mw_access_flags: rights.0 };
                wr.bind_mw_tso_union = bind_mw_tso_union_t { bind_mw: bind_mw_t { mw: window, rkey, bind_info } };
            }
            PreparedRequest::Invalidate { rkey } => {
                wr.opcode = opcode::IBV_WR_LOCAL_INV;
                wr.imm_data_invalidated_rkey_union = imm_data_invalidated_rkey_union_t { invalidated_rkey: rkey };
            }
        }
        self.requests.push(wr);
        self.segments.push(ibv_sge { addr: local.address, length: local.len, lkey: local.lkey });
    }

    /// Requests a completion for the last request.
    pub(super) fn signal_last(&mut self) {
        if let Some(wr) = self.requests.last_mut() {
            wr.send_flags |= flag::IBV_SEND_SIGNALED.0;
        }
    }

    /// Links the requests. The returned pointer is valid until the chain changes or moves.
    fn link(&mut self) -> *mut ibv_send_wr {
        let count = self.requests.len();
        let (requests, segments) = (self.requests.as_mut_ptr(), self.segments.as_mut_ptr());
        for (n, wr) in self.requests.iter_mut().enumerate() {
            if wr.num_sge > 0 {
                // SAFETY: there are as many segments as requests.
                wr.sg_list = unsafe { segments.add(n) };
            }
            if n + 1 < count {
                // SAFETY: inside the vector.
                wr.next = unsafe { requests.add(n + 1) };
            }
        }
        requests
    }

    /// Posts all requests to the device, which copies them.
    ///
    /// # Errors
    /// Returns the number of requests that the device accepted, and the error of the next one.
    ///
    /// # Safety
    /// The memory and objects of the requests must stay valid until the requests complete or the queue pair is
    /// destroyed. Meanwhile nothing else may access memory that they write, and nothing may write memory that they
    /// read.
    pub(super) unsafe fn post(&mut self, qp: &Qp) -> Result<(), (usize, std::io::Error)> {
        if self.is_empty() {
            return Ok(());
        }
        let first = self.link();
        let mut bad = ptr::null_mut();
        // SAFETY: the queue pair is live, the chain is linked and ends with null; the caller guarantees the rest.
        let code = unsafe { ffi::ibv_post_send(qp.as_ptr(), first, &raw mut bad) };
        if code == 0 {
            return Ok(());
        }
        // A library that does not report where it stopped has accepted nothing.
        let taken = self.requests.iter().position(|wr| ptr::eq(wr, bad)).unwrap_or(0);
        Err((taken, std::io::Error::from_raw_os_error(code.abs())))
    }
}

fn no_bind() -> bind_mw_t {
    let bind_info = ibv_mw_bind_info { mr: ptr::null_mut(), addr: 0, length: 0, mw_access_flags: 0 };
    bind_mw_t { mw: ptr::null_mut(), rkey: 0, bind_info }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_linked_and_encoded() {
        let mut chain = RequestChain::default();
        let local = LocalSegment { address: 0x1000, len: 10, lkey: 3 };
        let nothing = LocalSegment::default();
        chain.push(1, PreparedRequest::Send { local, invalidate: None, solicited: true }, true);
        chain.push(2, PreparedRequest::Send { local, invalidate: Some(0xaa), solicited: false }, false);
        chain.push(3, PreparedRequest::Write { local: nothing, remote: 5, rkey: 6 }, true);
        chain.push(4, PreparedRequest::Read { local, remote: 7, rkey: 8 }, false);
        let (window, region) = (ptr::dangling_mut(), ptr::dangling_mut());
        chain.push(
            5,
            PreparedRequest::Bind { window, rkey: 0x101, region, address: 0x2000, len: 99, write: false },
            false,
        );
        chain.push(6, PreparedRequest::Invalidate { rkey: 0x102 }, false);
        chain.signal_last();
        chain.link();
        let wrs = &chain.requests;
        for (n, wr) in wrs.iter().enumerate() {
            assert_eq!(wr.wr_id, n as u64 + 1);
            let next = wrs.get(n + 1).map_or(ptr::null(), ptr::from_ref);
            assert_eq!(wr.next.cast_const(), next);
            assert_eq!(wr.sg_list.is_null(), wr.num_sge == 0);
            assert_eq!(wr.send_flags & flag::IBV_SEND_SIGNALED.0 != 0, n == 5);
        }
        let opcodes: Vec<_> = wrs.iter().map(|wr| wr.opcode).collect();
        assert_eq!(
            opcodes,
            [
                opcode::IBV_WR_SEND,
                opcode::IBV_WR_SEND_WITH_INV,
                opcode::IBV_WR_RDMA_WRITE,
                opcode::IBV_WR_RDMA_READ,
                opcode::IBV_WR_BIND_MW,
                opcode::IBV_WR_LOCAL_INV
            ]
        );
        assert_eq!(wrs[0].send_flags, flag::IBV_SEND_INLINE.0 | flag::IBV_SEND_SOLICITED.0);
        // Empty data is not inline.
        assert_eq!((wrs[2].num_sge, wrs[2].send_flags), (0, 0));
        // SAFETY: all variants are plain numbers and pointers, set above as they are read here.
        unsafe {
            assert_eq!((*wrs[1].sg_list).addr, 0x1000);
            assert_eq!(wrs[1].imm_data_invalidated_rkey_union.invalidated_rkey, 0xaa);
            assert_eq!((wrs[2].wr.rdma.remote_addr, wrs[2].wr.rdma.rkey), (5, 6));
            assert_eq!((wrs[3].wr.rdma.remote_addr, wrs[3].wr.rdma.rkey), (7, 8));
            let bind = wrs[4].bind_mw_tso_union.bind_mw;
            assert_eq!((bind.rkey, bind.bind_info.addr, bind.bind_info.length), (0x101, 0x2000, 99));
            assert_eq!(bind.bind_info.mw_access_flags, access::IBV_ACCESS_REMOTE_READ.0);
            assert_eq!(wrs[5].imm_data_invalidated_rkey_union.invalidated_rkey, 0x102);
        }
    }
}
