//! VERSION: what both sides can do.

use serde_json::{Map, Value};

use crate::errno::Errno;
use crate::limits::{
    DATA_BYTES_MAX, DMA_MAPS_MAX, MESSAGE_FDS_MAX, PAGE_BYTES, VERSION_DATA_BYTES_MAX,
};

/// The version of the protocol that is spoken here.
pub(crate) const MAJOR: u16 = 0;
pub(crate) const MINOR: u16 = 0;

/// What a client has said of itself; where it said nothing, what the protocol has it mean then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Descriptors that it takes with one message.
    pub fds_max: u64,
    /// Data that it takes in one message.
    pub data_bytes_max: u64,
    /// Windows that it will have at a time.
    pub dma_maps_max: u64,
    /// Page sizes of windows, one bit each.
    pub page_sizes: u64,
}

impl Default for Capabilities {
    fn default() -> Self {
        Self {
            fds_max: 1,
            data_bytes_max: 1 << 20,
            dma_maps_max: 65_535,
            page_sizes: PAGE_BYTES,
        }
    }
}

/// Reads the JSON of a client's VERSION. Returns what it can do, and the JSON of the reply: of what it named, our word.
pub(crate) fn negotiate(data: &[u8]) -> Result<(Capabilities, Vec<u8>), Errno> {
    let mut client = Capabilities::default();
    let mut ours = Map::new();
    if data.is_empty() {
        return Ok((client, reply(ours)));
    }
    if data.len() > VERSION_DATA_BYTES_MAX {
        return Err(Errno::E2BIG);
    }
    let Some((0, text)) = data.split_last() else {
        return Err(Errno::EINVAL);
    };
    let parsed: Value = serde_json::from_slice(text).map_err(|_| Errno::EINVAL)?;
    let Value::Object(top) = parsed else {
        return Err(Errno::EINVAL);
    };
    let named = match top.get("capabilities") {
        None => return Ok((client, reply(ours))),
        Some(Value::Object(named)) => named,
        Some(_) => return Err(Errno::EINVAL),
    };
    let known = [
        ("max_msg_fds", &mut client.fds_max, MESSAGE_FDS_MAX as u64),
        (
            "max_data_xfer_size",
            &mut client.data_bytes_max,
            u64::from(DATA_BYTES_MAX),
        ),
        (
            "max_dma_maps",
            &mut client.dma_maps_max,
            u64::from(DMA_MAPS_MAX),
        ),
        ("pgsizes", &mut client.page_sizes, PAGE_BYTES),
    ];
    for (name, place, our_value) in known {
        if let Some(value) = named.get(name) {
            *place = value.as_u64().ok_or(Errno::EINVAL)?;
            ours.insert(name.to_owned(), our_value.into());
        }
    }
    if client.page_sizes & PAGE_BYTES == 0 || client.data_bytes_max == 0 {
        return Err(Errno::EINVAL);
    }
    Ok((client, reply(ours)))
}

fn reply(capabilities: Map<String, Value>) -> Vec<u8> {
    let whole = serde_json::json!({ "capabilities": capabilities });
    let mut text = whole.to_string().into_bytes();
    text.push(0);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What QEMU 11.1 sends, and what it is told.
    #[test]
    fn qemu_is_told_of_what_it_names() {
        let sent = b"{\"capabilities\": {\"max_msg_fds\": 16, \"max_data_xfer_size\": 1048576, \"pgsizes\": 4096, \"max_dma_maps\": 65535, \"write_multiple\": true}}\0";
        let (client, reply) = negotiate(sent).unwrap();
        let expected = Capabilities {
            fds_max: 16,
            data_bytes_max: 1 << 20,
            dma_maps_max: 65_535,
            page_sizes: 4096,
        };
        assert_eq!(client, expected);
        let (zero, text) = reply.split_last().unwrap();
        let parsed: Value = serde_json::from_slice(text).unwrap();
        let told = serde_json::json!({"capabilities": {
            "max_msg_fds": 16, "max_data_xfer_size": 1_048_576, "max_dma_maps": 512, "pgsizes": 4096
        }});
        assert_eq!((*zero, parsed), (0, told));
    }

    #[test]
    fn a_client_that_says_nothing_has_the_protocols_defaults() {
        for silent in [&b""[..], b"{}\0", b"{\"capabilities\":{}}\0"] {
            let (client, reply) = negotiate(silent).unwrap();
            assert_eq!(client, Capabilities::default());
            assert_eq!(reply, b"{\"capabilities\":{}}\0");
        }
    }

    #[test]
    fn what_is_no_json_is_refused() {
        for wrong in [
            &b"{}"[..],
            b"\0",
            b"{\0",
            b"[]\0",
            b"\xFF\xFE\0",
            b"{\"capabilities\":[]}\0",
            b"{\"capabilities\":{\"max_msg_fds\":-1}}\0",
            b"{\"capabilities\":{\"max_msg_fds\":\"16\"}}\0",
            b"{\"capabilities\":{\"pgsizes\":8192}}\0",
            b"{\"capabilities\":{\"max_data_xfer_size\":0}}\0",
        ] {
            assert_eq!(negotiate(wrong).unwrap_err(), Errno::EINVAL, "{wrong:?}");
        }
        let long = vec![b' '; VERSION_DATA_BYTES_MAX + 1];
        assert_eq!(negotiate(&long).unwrap_err(), Errno::E2BIG);
    }
}
