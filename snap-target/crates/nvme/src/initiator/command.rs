//! The commands a host sends, as submission queue entries with the transfer that belongs to each.
//!
//! The command identifier and the data pointer are left empty: the connection that sends the command fills them in.

use nvme_spec::fabrics::{
    CATTR_DISABLE_SQ_FLOW_CONTROL, CNTLID_DYNAMIC, ConnectData, ConnectSqe, DisconnectSqe,
    FabricsType, PROPERTY_4_BYTES, PROPERTY_8_BYTES, PropertySqe,
};
use nvme_spec::feature::{FeatureId, NumberOfQueues};
use nvme_spec::identify::Cns;
use nvme_spec::log::LogPageId;
use nvme_spec::register::{Cc, Property};
use nvme_spec::{
    AdminOpcode, Cid, IDENTIFY_BYTES, IoOpcode, Lba, NQN_BYTES_MAX, NQN_FIELD_BYTES, Nsid, Sqe,
    U16, U32, U64,
};
use zerocopy::{FromZeros, IntoBytes};

use crate::outstanding::{Command, Transfer};

/// Who asks for a queue, and of what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Association {
    /// The host's identifier; the same on each of its queues.
    pub host_id: [u8; 16],
    /// The host's NQN.
    pub hostnqn: String,
    /// The subsystem's NQN.
    pub subnqn: String,
}

/// Bytes of the Connect command's data.
#[expect(clippy::cast_possible_truncation, reason = "1024")]
pub const CONNECT_DATA_BYTES: u32 = size_of::<ConnectData>() as u32;

/// Connect (Base, "Connect Command"): `qid` 0 is the admin queue; `kato_ms` counts there only.
///
/// SQ flow control is switched off: a connection never has more than `entries_z` commands outstanding, so SQHD says nothing
/// new, and without it a controller may end a read with its last data PDU and no response (TCP, "C2HData PDU": SUCCESS).
pub fn connect(qid: u16, entries_z: u16, kato_ms: u32) -> Command {
    let mut connect = ConnectSqe::new_zeroed();
    connect.opcode = AdminOpcode::FABRICS.0;
    connect.fctype = FabricsType::CONNECT.0;
    connect.qid = U16::new(qid);
    connect.sqsize_z = U16::new(entries_z);
    connect.cattr = CATTR_DISABLE_SQ_FLOW_CONTROL;
    connect.kato_ms = U32::new(kato_ms);
    Command {
        sqe: *connect.as_sqe(),
        transfer: Transfer::Out(CONNECT_DATA_BYTES),
    }
}

/// The data of Connect. `cntlid` names the association's controller on an I/O queue; `None` asks for a new one.
/// An NQN longer than 223 bytes is cut: check before.
pub fn connect_data(association: &Association, cntlid: Option<u16>) -> Vec<u8> {
    let mut data = ConnectData::new_zeroed();
    data.host_id = association.host_id;
    data.cntlid = U16::new(cntlid.unwrap_or(CNTLID_DYNAMIC));
    put_nqn(&mut data.subnqn, &association.subnqn);
    put_nqn(&mut data.hostnqn, &association.hostnqn);
    data.as_bytes().to_vec()
}

fn put_nqn(field: &mut [u8; NQN_FIELD_BYTES], nqn: &str) {
    for (to, from) in field.iter_mut().take(NQN_BYTES_MAX).zip(nqn.bytes()) {
        *to = from;
    }
}

/// Property Get (Base, "Property Get Command"); the value is the completion's [`nvme_spec::Cqe::result`].
pub fn property_get(property: Property) -> Command {
    let mut get = PropertySqe::new_zeroed();
    get.opcode = AdminOpcode::FABRICS.0;
    get.fctype = FabricsType::PROPERTY_GET.0;
    get.attrib = if property == Property::CAP {
        PROPERTY_8_BYTES
    } else {
        PROPERTY_4_BYTES
    };
    get.offset = U32::new(property.0);
    without_data(*get.as_sqe())
}

/// Property Set of CC (Base, "Property Set Command").
pub fn property_set_cc(cc: Cc) -> Command {
    let mut set = PropertySqe::new_zeroed();
    set.opcode = AdminOpcode::FABRICS.0;
    set.fctype = FabricsType::PROPERTY_SET.0;
    set.attrib = PROPERTY_4_BYTES;
    set.offset = U32::new(Property::CC.0);
    set.value = U64::new(u64::from(cc.0));
    without_data(*set.as_sqe())
}

/// Disconnect (Base, "Disconnect Command"): ends the I/O queue it is sent on.
pub fn disconnect() -> Command {
    let mut disconnect = DisconnectSqe::new_zeroed();
    disconnect.opcode = AdminOpcode::FABRICS.0;
    disconnect.fctype = FabricsType::DISCONNECT.0;
    without_data(zerocopy::transmute!(disconnect))
}

/// Identify (Base, "Identify command"): always 4096 bytes.
pub fn identify(cns: Cns, nsid: Nsid) -> Command {
    #[expect(clippy::cast_possible_truncation, reason = "4096")]
    const BYTES: u32 = IDENTIFY_BYTES as u32;
    Command {
        sqe: Sqe {
            opcode: AdminOpcode::IDENTIFY.0,
            nsid: U32::new(nsid.0),
            cdw10: U32::new(u32::from(cns.0)),
            ..Sqe::ZERO
        },
        transfer: Transfer::In(BYTES),
    }
}

/// Set Features, Number of Queues: `queues` I/O queue pairs, at least one.
pub fn set_number_of_queues(queues: u16) -> Command {
    let queues_z = queues.saturating_sub(1);
    without_data(Sqe {
        opcode: AdminOpcode::SET_FEATURES.0,
        cdw10: U32::new(u32::from(FeatureId::NUMBER_OF_QUEUES.0)),
        cdw11: U32::new(NumberOfQueues::new(queues_z, queues_z).0),
        ..Sqe::ZERO
    })
}

/// Keep Alive (Base, "Keep Alive command").
pub fn keep_alive() -> Command {
    without_data(Sqe {
        opcode: AdminOpcode::KEEP_ALIVE.0,
        ..Sqe::ZERO
    })
}

/// Get Log Page (Base, "Get Log Page command"): `bytes` from `offset` of the log; both multiples of 4, `bytes` not zero.
#[expect(clippy::cast_possible_truncation, reason = "halves of one number")]
pub fn get_log_page(log: LogPageId, nsid: Nsid, offset: u64, bytes: u32) -> Command {
    let dwords_z = (bytes / 4).saturating_sub(1);
    Command {
        sqe: Sqe {
            opcode: AdminOpcode::GET_LOG_PAGE.0,
            nsid: U32::new(nsid.0),
            cdw10: U32::new(u32::from(log.0) | dwords_z << 16),
            cdw11: U32::new(dwords_z >> 16),
            cdw12: U32::new(offset as u32),
            cdw13: U32::new((offset >> 32) as u32),
            ..Sqe::ZERO
        },
        transfer: Transfer::In(bytes),
    }
}

/// Get Log Page, Asymmetric Namespace Access, the first `bytes` of it, groups without their namespaces (RGO).
pub fn get_ana_groups(bytes: u32) -> Command {
    const RETURN_GROUPS_ONLY: u32 = 1 << 8;
    let mut command = get_log_page(LogPageId::ANA, Nsid::NONE, 0, bytes);
    command.sqe.cdw10 = U32::new(command.sqe.cdw10.get() | RETURN_GROUPS_ONLY);
    command
}

/// Set Features, Asynchronous Event Configuration: see [`nvme_spec::feature::async_event_configuration`].
pub fn set_async_events(configuration: u32) -> Command {
    without_data(Sqe {
        opcode: AdminOpcode::SET_FEATURES.0,
        cdw10: U32::new(u32::from(FeatureId::ASYNC_EVENT_CONFIGURATION.0)),
        cdw11: U32::new(configuration),
        ..Sqe::ZERO
    })
}

/// Abort of command `cid` of submission queue `sqid` (Base, "Abort command").
pub fn abort(sqid: u16, cid: Cid) -> Command {
    without_data(Sqe {
        opcode: AdminOpcode::ABORT.0,
        cdw10: U32::new(u32::from(sqid) | u32::from(cid.0) << 16),
        ..Sqe::ZERO
    })
}

/// Asynchronous Event Request (Base, "Asynchronous Event Request command").
pub fn async_event_request() -> Command {
    without_data(Sqe {
        opcode: AdminOpcode::ASYNC_EVENT_REQUEST.0,
        ..Sqe::ZERO
    })
}

/// Blocks of one Read or Write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// First block.
    pub lba: Lba,
    /// How many: 1 to 65,536.
    pub count: u32,
    /// Bytes of one block.
    pub lba_bytes: u32,
}

impl Blocks {
    /// Bytes of all blocks.
    pub fn bytes(&self) -> u32 {
        self.count.saturating_mul(self.lba_bytes)
    }
}

/// Read (NVM, "Read command").
pub fn read(nsid: Nsid, blocks: Blocks) -> Command {
    Command {
        sqe: block_command(IoOpcode::READ, nsid, blocks),
        transfer: Transfer::In(blocks.bytes()),
    }
}

/// Write (NVM, "Write command").
pub fn write(nsid: Nsid, blocks: Blocks) -> Command {
    Command {
        sqe: block_command(IoOpcode::WRITE, nsid, blocks),
        transfer: Transfer::Out(blocks.bytes()),
    }
}

/// Write with FUA: complete only when its bytes are on stable storage.
pub fn write_durable(nsid: Nsid, blocks: Blocks) -> Command {
    let mut command = write(nsid, blocks);
    command.sqe.set_fua();
    command
}

/// Flush (NVM, "Flush command").
pub fn flush(nsid: Nsid) -> Command {
    without_data(Sqe {
        opcode: IoOpcode::FLUSH.0,
        nsid: U32::new(nsid.0),
        ..Sqe::ZERO
    })
}

fn block_command(opcode: IoOpcode, nsid: Nsid, blocks: Blocks) -> Sqe {
    let mut sqe = Sqe {
        opcode: opcode.0,
        nsid: U32::new(nsid.0),
        cdw12: U32::new(blocks.count.saturating_sub(1) & 0xFFFF),
        ..Sqe::ZERO
    };
    sqe.set_slba(blocks.lba);
    sqe
}

fn without_data(sqe: Sqe) -> Command {
    Command {
        sqe,
        transfer: Transfer::None,
    }
}

/// What a command is called in the specification, for messages: fabrics commands by their type, others by opcode.
pub fn name(sqe: &Sqe, admin_queue: bool) -> String {
    if sqe.opcode == AdminOpcode::FABRICS.0 {
        return format!("{:?}", FabricsType(sqe.fctype()));
    }
    if admin_queue {
        format!("{:?}", AdminOpcode(sqe.opcode))
    } else {
        format!("{:?}", IoOpcode(sqe.opcode))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nvme_spec::log::GetLogPage;
    use zerocopy::IntoBytes;

    /// The bytes that Linux 6.12 sends for the same commands, identifier and data pointer left out.
    #[test]
    fn entries_are_byte_for_byte_what_the_specification_says() {
        let bytes = |command: Command| command.sqe.as_bytes().to_vec();
        let entry = |parts: &[(usize, &[u8])]| {
            let mut entry = vec![0; 64];
            for (at, part) in parts {
                entry[*at..*at + part.len()].copy_from_slice(part);
            }
            entry
        };
        assert_eq!(
            bytes(connect(3, 127, 5000)),
            entry(&[
                (0, &[0x7F]),
                (4, &[1]),
                (42, &[3, 0, 127, 0, 4]),
                (48, &[0x88, 0x13])
            ])
        );
        assert_eq!(
            bytes(property_get(Property::CAP)),
            entry(&[(0, &[0x7F]), (4, &[4]), (40, &[1])])
        );
        assert_eq!(
            bytes(property_set_cc(Cc::enable_nvm())),
            entry(&[(0, &[0x7F]), (44, &[0x14]), (48, &[1, 0, 0x46])])
        );
        assert_eq!(bytes(disconnect()), entry(&[(0, &[0x7F]), (4, &[8])]));
        assert_eq!(
            bytes(identify(Cns::CONTROLLER, Nsid::NONE)),
            entry(&[(0, &[6]), (40, &[1])])
        );
        assert_eq!(
            bytes(set_number_of_queues(4)),
            entry(&[(0, &[9]), (40, &[7]), (44, &[3, 0, 3, 0])])
        );
        let blocks = Blocks {
            lba: Lba(0x0102_0304_0506_0708),
            count: 256,
            lba_bytes: 512,
        };
        let range: &[u8] = &[8, 7, 6, 5, 4, 3, 2, 1, 255];
        assert_eq!(
            bytes(read(Nsid(9), blocks)),
            entry(&[(0, &[2]), (4, &[9]), (40, range)])
        );
        assert_eq!(
            bytes(write(Nsid(9), blocks)),
            entry(&[(0, &[1]), (4, &[9]), (40, range)])
        );
        assert_eq!(bytes(flush(Nsid(9))), entry(&[(4, &[9])]));
        assert_eq!(read(Nsid(9), blocks).transfer, Transfer::In(131_072));
    }

    #[test]
    fn the_log_page_command_reads_back_as_it_was_asked() {
        let command = get_log_page(LogPageId::DISCOVERY, Nsid::NONE, 1 << 33, 1 << 20);
        let parsed = GetLogPage::of(&command.sqe);
        assert_eq!(parsed.id, LogPageId::DISCOVERY);
        assert_eq!((parsed.bytes, parsed.offset), (1 << 20, 1 << 33));
    }

    #[test]
    fn the_connect_data_carry_both_names_and_the_controller() {
        let association = Association {
            host_id: [7; 16],
            hostnqn: "nqn.host".into(),
            subnqn: "nqn.sub".into(),
        };
        let data = connect_data(&association, Some(5));
        assert_eq!(data.len(), 1024);
        assert_eq!(data[..18], [[7; 16].as_slice(), &[5, 0]].concat());
        assert_eq!(&data[256..264], b"nqn.sub\0");
        assert_eq!(&data[512..521], b"nqn.host\0");
        assert_eq!(connect_data(&association, None)[16..18], [0xFF, 0xFF]);
    }
}
