//! What libibverbs.so.1 and librdmacm.so.1 have that is used here: structures, numbers and calls.
//!
//! Written after `infiniband/verbs.h` and `rdma/rdma_cma.h` of rdma-core 44.0 (Debian 12); those of 64.0 have the same layouts. Structures that the libraries allocate are
//! declared up to the last field that is used, so what follows (mutexes, whose size depends on the machine) does not matter. The numbers in the test below were printed by
//! a C program with these headers; they hold on every 64-bit Linux.

use std::ffi::{c_char, c_int, c_uint, c_void};

use nix::libc::sockaddr;

use super::library::{IBVERBS, RDMACM};
use crate::error::{Result, VerbsError};

#[repr(C)]
pub(super) struct Device {
    _opaque: [u8; 0],
}

#[repr(C)]
pub(super) struct ContextOps {
    pub(super) compat_before: [*const c_void; 7],
    pub(super) alloc_mw: Option<unsafe extern "C" fn(*mut Pd, c_int) -> *mut Mw>,
    pub(super) bind_mw: *const c_void,
    pub(super) dealloc_mw: Option<unsafe extern "C" fn(*mut Mw) -> c_int>,
    pub(super) compat_create_cq: *const c_void,
    pub(super) poll_cq: Option<unsafe extern "C" fn(*mut Cq, c_int, *mut Wc) -> c_int>,
    pub(super) req_notify_cq: Option<unsafe extern "C" fn(*mut Cq, c_int) -> c_int>,
    pub(super) compat_between: [*const c_void; 12],
    pub(super) post_send:
        Option<unsafe extern "C" fn(*mut Qp, *mut SendWr, *mut *mut SendWr) -> c_int>,
    pub(super) post_recv:
        Option<unsafe extern "C" fn(*mut Qp, *mut RecvWr, *mut *mut RecvWr) -> c_int>,
    pub(super) compat_behind: [*const c_void; 5],
}

#[repr(C)]
pub(super) struct Context {
    pub(super) device: *mut Device,
    pub(super) ops: ContextOps,
    pub(super) cmd_fd: c_int,
    pub(super) async_fd: c_int,
}

#[repr(C)]
pub(super) struct Pd {
    pub(super) context: *mut Context,
}

#[repr(C)]
pub(super) struct Mr {
    pub(super) context: *mut Context,
    pub(super) pd: *mut Pd,
    pub(super) addr: *mut c_void,
    pub(super) length: usize,
    pub(super) handle: u32,
    pub(super) lkey: u32,
    pub(super) rkey: u32,
}

pub(super) const MW_TYPE_2: c_int = 2;

#[repr(C)]
pub(super) struct Mw {
    pub(super) context: *mut Context,
    pub(super) pd: *mut Pd,
    pub(super) rkey: u32,
}

#[repr(C)]
pub(super) struct CompChannel {
    pub(super) context: *mut Context,
    pub(super) fd: c_int,
}

#[repr(C)]
pub(super) struct Cq {
    pub(super) context: *mut Context,
    pub(super) channel: *mut CompChannel,
    pub(super) cq_context: *mut c_void,
    pub(super) handle: u32,
    pub(super) cqe: c_int,
}

#[repr(C)]
pub(super) struct Qp {
    pub(super) context: *mut Context,
    pub(super) qp_context: *mut c_void,
    pub(super) pd: *mut Pd,
    pub(super) send_cq: *mut Cq,
    pub(super) recv_cq: *mut Cq,
    pub(super) srq: *mut c_void,
    pub(super) handle: u32,
    pub(super) qp_num: u32,
}

pub(super) const QPT_RC: c_int = 2;

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct QpCap {
    pub(super) max_send_wr: u32,
    pub(super) max_recv_wr: u32,
    pub(super) max_send_sge: u32,
    pub(super) max_recv_sge: u32,
    pub(super) max_inline_data: u32,
}

#[repr(C)]
pub(super) struct QpInitAttr {
    pub(super) qp_context: *mut c_void,
    pub(super) send_cq: *mut Cq,
    pub(super) recv_cq: *mut Cq,
    pub(super) srq: *mut c_void,
    pub(super) cap: QpCap,
    pub(super) qp_type: c_int,
    pub(super) sq_sig_all: c_int,
}

pub(super) const QP_ATTR_STATE: c_int = 1;
pub(super) const QPS_ERR: c_int = 6;

#[repr(C, align(8))]
pub(super) struct QpAttr {
    pub(super) qp_state: c_int,
    pub(super) rest: [u8; 140],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Sge {
    pub(super) addr: u64,
    pub(super) length: u32,
    pub(super) lkey: u32,
}

pub(super) const WR_RDMA_WRITE: c_int = 0;
pub(super) const WR_SEND: c_int = 2;
pub(super) const WR_RDMA_READ: c_int = 4;
pub(super) const WR_LOCAL_INV: c_int = 7;
pub(super) const WR_BIND_MW: c_int = 8;
pub(super) const WR_SEND_WITH_INV: c_int = 9;
pub(super) const SEND_FENCE: c_uint = 1;
pub(super) const SEND_SIGNALED: c_uint = 1 << 1;
pub(super) const SEND_SOLICITED: c_uint = 1 << 2;
pub(super) const SEND_INLINE: c_uint = 1 << 3;

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct MwBindInfo {
    pub(super) mr: *mut Mr,
    pub(super) addr: u64,
    pub(super) length: u64,
    pub(super) mw_access_flags: c_uint,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct SendWr {
    pub(super) wr_id: u64,
    pub(super) next: *mut SendWr,
    pub(super) sg_list: *mut Sge,
    pub(super) num_sge: c_int,
    pub(super) opcode: c_int,
    pub(super) send_flags: c_uint,
    /// The key to invalidate; a union with immediate data.
    pub(super) invalidate_rkey: u32,
    /// The first of the three forms of `wr`.
    pub(super) remote_addr: u64,
    pub(super) remote_rkey: u32,
    pub(super) wr_rest: [u32; 5],
    pub(super) qp_type: u32,
    pub(super) mw: *mut Mw,
    pub(super) mw_rkey: u32,
    pub(super) bind_info: MwBindInfo,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct RecvWr {
    pub(super) wr_id: u64,
    pub(super) next: *mut RecvWr,
    pub(super) sg_list: *mut Sge,
    pub(super) num_sge: c_int,
}

pub(super) const WC_WITH_INV: c_uint = 1 << 3;

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Wc {
    pub(super) wr_id: u64,
    pub(super) status: u32,
    pub(super) opcode: u32,
    pub(super) vendor_err: u32,
    pub(super) byte_len: u32,
    /// A union with immediate data.
    pub(super) invalidated_rkey: u32,
    pub(super) qp_num: u32,
    pub(super) src_qp: u32,
    pub(super) wc_flags: c_uint,
    pub(super) pkey_index: u16,
    pub(super) slid: u16,
    pub(super) sl: u8,
    pub(super) dlid_path_bits: u8,
}

#[repr(C, align(8))]
#[derive(Clone, Copy, Default)]
pub(super) struct GidEntry {
    pub(super) gid: [u8; 16],
    pub(super) gid_index: u32,
    pub(super) port_num: u32,
    pub(super) gid_type: u32,
    pub(super) ndev_ifindex: u32,
}

#[repr(C)]
pub(super) struct AsyncEvent {
    /// A completion queue, a queue pair, or in its first four bytes a port.
    pub(super) element: *mut c_void,
    pub(super) event_type: u32,
}

pub(super) const DEVICE_MEM_MGT_EXTENSIONS: c_uint = 1 << 21;
pub(super) const DEVICE_MEM_WINDOW_TYPE_2B: c_uint = 1 << 24;

#[repr(C)]
pub(super) struct DeviceAttr {
    pub(super) fw_ver: [c_char; 64],
    pub(super) node_guid: u64,
    pub(super) sys_image_guid: u64,
    pub(super) max_mr_size: u64,
    pub(super) page_size_cap: u64,
    pub(super) vendor_id: u32,
    pub(super) vendor_part_id: u32,
    pub(super) hw_ver: u32,
    pub(super) max_qp: c_int,
    pub(super) max_qp_wr: c_int,
    pub(super) device_cap_flags: c_uint,
    pub(super) max_sge: c_int,
    pub(super) max_sge_rd: c_int,
    pub(super) max_cq: c_int,
    pub(super) max_cqe: c_int,
    pub(super) max_mr: c_int,
    pub(super) max_pd: c_int,
    pub(super) max_qp_rd_atom: c_int,
    pub(super) max_ee_rd_atom: c_int,
    pub(super) max_res_rd_atom: c_int,
    pub(super) max_qp_init_rd_atom: c_int,
    pub(super) max_ee_init_rd_atom: c_int,
    pub(super) atomic_cap: c_int,
    pub(super) max_ee: c_int,
    pub(super) max_rdd: c_int,
    pub(super) max_mw: c_int,
    pub(super) unused: [c_int; 11],
    pub(super) max_pkeys: u16,
    pub(super) local_ca_ack_delay: u8,
    pub(super) phys_port_cnt: u8,
}

#[repr(C)]
pub(super) struct EventChannel {
    pub(super) fd: c_int,
}

pub(super) const PS_TCP: c_int = 0x0106;

/// An address of either family, as long as the longest: `struct sockaddr_storage`.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(super) struct Sockaddr(pub(super) [u8; 128]);

#[repr(C)]
pub(super) struct CmId {
    pub(super) verbs: *mut Context,
    pub(super) channel: *mut EventChannel,
    pub(super) context: *mut c_void,
    pub(super) qp: *mut Qp,
    pub(super) src_addr: Sockaddr,
    pub(super) dst_addr: Sockaddr,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ConnParam {
    pub(super) private_data: *const c_void,
    pub(super) private_data_len: u8,
    pub(super) responder_resources: u8,
    pub(super) initiator_depth: u8,
    pub(super) flow_control: u8,
    pub(super) retry_count: u8,
    pub(super) rnr_retry_count: u8,
    pub(super) srq: u8,
    pub(super) qp_num: u32,
}

#[repr(C)]
pub(super) struct CmEvent {
    pub(super) id: *mut CmId,
    pub(super) listen_id: *mut CmId,
    pub(super) event: u32,
    pub(super) status: c_int,
    /// The form for connections; the union is longer.
    pub(super) conn: ConnParam,
}

/// Declares the table of one library's calls, and how it is filled.
macro_rules! calls {
    ($table:ident, $library:expr, $($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// A library's calls.
        pub(super) struct $table {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl $table {
            /// Finds every call; which one is missing otherwise.
            ///
            /// # Safety
            /// The library is the one whose header declares these types, and stays loaded as long as the table is used.
            pub(super) unsafe fn find(library: &libloading::Library) -> Result<Self> {
                Ok(Self {
                    $($name: {
                        // SAFETY: by this function's contract.
                        let found = unsafe { library.get(stringify!($name)) };
                        *found.map_err(|_| VerbsError::SymbolMissing { library: $library, symbol: stringify!($name) })?
                    },)*
                })
            }
        }
    };
}

calls! { CmCalls, RDMACM,
        rdma_create_event_channel: fn() -> *mut EventChannel;
        rdma_destroy_event_channel: fn(*mut EventChannel);
        rdma_create_id: fn(*mut EventChannel, *mut *mut CmId, *mut c_void, c_int) -> c_int;
        rdma_destroy_id: fn(*mut CmId) -> c_int;
        rdma_bind_addr: fn(*mut CmId, *mut sockaddr) -> c_int;
        rdma_listen: fn(*mut CmId, c_int) -> c_int;
        rdma_resolve_addr: fn(*mut CmId, *mut sockaddr, *mut sockaddr, c_int) -> c_int;
        rdma_resolve_route: fn(*mut CmId, c_int) -> c_int;
        rdma_connect: fn(*mut CmId, *mut ConnParam) -> c_int;
        rdma_accept: fn(*mut CmId, *mut ConnParam) -> c_int;
        rdma_reject: fn(*mut CmId, *const c_void, u8) -> c_int;
        rdma_disconnect: fn(*mut CmId) -> c_int;
        rdma_get_cm_event: fn(*mut EventChannel, *mut *mut CmEvent) -> c_int;
        rdma_ack_cm_event: fn(*mut CmEvent) -> c_int;
        rdma_create_qp: fn(*mut CmId, *mut Pd, *mut QpInitAttr) -> c_int;
        rdma_migrate_id: fn(*mut CmId, *mut EventChannel) -> c_int;
        rdma_get_devices: fn(*mut c_int) -> *mut *mut Context;
        rdma_free_devices: fn(*mut *mut Context);
}

calls! { VerbsCalls, IBVERBS,
        ibv_get_device_name: fn(*mut Device) -> *const c_char;
        ibv_query_device: fn(*mut Context, *mut DeviceAttr) -> c_int;
        _ibv_query_gid_table: fn(*mut Context, *mut GidEntry, usize, u32, usize) -> isize;
        ibv_get_async_event: fn(*mut Context, *mut AsyncEvent) -> c_int;
        ibv_ack_async_event: fn(*mut AsyncEvent);
        ibv_alloc_pd: fn(*mut Context) -> *mut Pd;
        ibv_dealloc_pd: fn(*mut Pd) -> c_int;
        ibv_reg_mr: fn(*mut Pd, *mut c_void, usize, c_int) -> *mut Mr;
        ibv_dereg_mr: fn(*mut Mr) -> c_int;
        ibv_create_comp_channel: fn(*mut Context) -> *mut CompChannel;
        ibv_destroy_comp_channel: fn(*mut CompChannel) -> c_int;
        ibv_create_cq: fn(*mut Context, c_int, *mut c_void, *mut CompChannel, c_int) -> *mut Cq;
        ibv_destroy_cq: fn(*mut Cq) -> c_int;
        ibv_get_cq_event: fn(*mut CompChannel, *mut *mut Cq, *mut *mut c_void) -> c_int;
        ibv_ack_cq_events: fn(*mut Cq, c_uint);
        ibv_destroy_qp: fn(*mut Qp) -> c_int;
        ibv_query_qp: fn(*mut Qp, *mut QpAttr, c_int, *mut QpInitAttr) -> c_int;
        ibv_modify_qp: fn(*mut Qp, *mut QpAttr, c_int) -> c_int;
}

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use super::*;

    #[test]
    fn layouts_are_those_of_the_headers() {
        let sizes = [
            (size_of::<DeviceAttr>(), 232),
            (size_of::<ContextOps>(), 256),
            (size_of::<QpCap>(), 20),
            (size_of::<QpInitAttr>(), 64),
            (size_of::<QpAttr>(), 144),
            (size_of::<Sge>(), 16),
            (size_of::<SendWr>(), 128),
            (size_of::<MwBindInfo>(), 32),
            (size_of::<RecvWr>(), 32),
            (size_of::<Wc>(), 48),
            (size_of::<GidEntry>(), 32),
            (size_of::<AsyncEvent>(), 16),
            (size_of::<ConnParam>(), 24),
            (size_of::<EventChannel>(), 4),
            (size_of::<Sockaddr>(), 128),
        ];
        let offsets = [
            (offset_of!(DeviceAttr, max_mr_size), 80),
            (offset_of!(DeviceAttr, max_qp), 108),
            (offset_of!(DeviceAttr, device_cap_flags), 116),
            (offset_of!(DeviceAttr, max_qp_rd_atom), 144),
            (offset_of!(DeviceAttr, max_qp_init_rd_atom), 156),
            (offset_of!(DeviceAttr, max_mw), 176),
            (offset_of!(DeviceAttr, phys_port_cnt), 227),
            (offset_of!(Context, ops), 8),
            (offset_of!(Context, cmd_fd), 264),
            (offset_of!(Context, async_fd), 268),
            (offset_of!(ContextOps, alloc_mw), 56),
            (offset_of!(ContextOps, dealloc_mw), 72),
            (offset_of!(ContextOps, poll_cq), 88),
            (offset_of!(ContextOps, req_notify_cq), 96),
            (offset_of!(ContextOps, post_send), 200),
            (offset_of!(ContextOps, post_recv), 208),
            (offset_of!(Mr, lkey), 36),
            (offset_of!(Mr, rkey), 40),
            (offset_of!(Mw, rkey), 16),
            (offset_of!(CompChannel, fd), 8),
            (offset_of!(Cq, cq_context), 16),
            (offset_of!(Cq, cqe), 28),
            (offset_of!(Qp, qp_num), 52),
            (offset_of!(QpInitAttr, cap), 32),
            (offset_of!(QpInitAttr, qp_type), 52),
            (offset_of!(QpInitAttr, sq_sig_all), 56),
            (offset_of!(SendWr, opcode), 28),
            (offset_of!(SendWr, send_flags), 32),
            (offset_of!(SendWr, invalidate_rkey), 36),
            (offset_of!(SendWr, remote_addr), 40),
            (offset_of!(SendWr, remote_rkey), 48),
            (offset_of!(SendWr, qp_type), 72),
            (offset_of!(SendWr, mw), 80),
            (offset_of!(SendWr, mw_rkey), 88),
            (offset_of!(SendWr, bind_info), 96),
            (offset_of!(MwBindInfo, mw_access_flags), 24),
            (offset_of!(RecvWr, num_sge), 24),
            (offset_of!(Wc, opcode), 12),
            (offset_of!(Wc, vendor_err), 16),
            (offset_of!(Wc, byte_len), 20),
            (offset_of!(Wc, invalidated_rkey), 24),
            (offset_of!(Wc, qp_num), 28),
            (offset_of!(Wc, wc_flags), 36),
            (offset_of!(GidEntry, gid_type), 24),
            (offset_of!(AsyncEvent, event_type), 8),
            (offset_of!(CmId, verbs), 0),
            (offset_of!(CmId, context), 16),
            (offset_of!(CmId, qp), 24),
            (offset_of!(CmId, src_addr), 32),
            (offset_of!(CmId, dst_addr), 32 + 128),
            (offset_of!(ConnParam, private_data_len), 8),
            (offset_of!(ConnParam, responder_resources), 9),
            (offset_of!(ConnParam, initiator_depth), 10),
            (offset_of!(ConnParam, retry_count), 12),
            (offset_of!(ConnParam, rnr_retry_count), 13),
            (offset_of!(ConnParam, qp_num), 16),
            (offset_of!(CmEvent, event), 16),
            (offset_of!(CmEvent, status), 20),
            (offset_of!(CmEvent, conn), 24),
        ];
        for (nth, (is, must)) in sizes.into_iter().enumerate() {
            assert_eq!(is, must, "size {nth}");
        }
        for (nth, (is, must)) in offsets.into_iter().enumerate() {
            assert_eq!(is, must, "offset {nth}");
        }
    }
}
