//! What carries connections to a listener, and a listener's place as one word.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use admin_proto::v1;
use nvme::controller::Transport;

/// What carries connections to a listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fabric {
    /// NVMe/TCP.
    #[default]
    Tcp,
    /// NVMe/RDMA.
    Rdma,
}

impl Fabric {
    /// As nvme-cli's `-t`, configurations and URLs name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Rdma => "rdma",
        }
    }
}

impl FromStr for Fabric {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "tcp" => Ok(Self::Tcp),
            "rdma" => Ok(Self::Rdma),
            _ => Err("write tcp or rdma".to_owned()),
        }
    }
}

impl From<Fabric> for Transport {
    fn from(fabric: Fabric) -> Self {
        match fabric {
            Fabric::Tcp => Self::Tcp,
            Fabric::Rdma => Self::Rdma,
        }
    }
}

impl From<Fabric> for v1::Transport {
    fn from(fabric: Fabric) -> Self {
        match fabric {
            Fabric::Tcp => Self::Tcp,
            Fabric::Rdma => Self::Rdma,
        }
    }
}

/// Where a listener is. As text `IP:PORT` over TCP, `rdma://IP:PORT` over RDMA, whose ports are others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// What carries its connections.
    pub fabric: Fabric,
    /// Address and port; port 0 takes a free one.
    pub address: SocketAddr,
}

/// Over TCP, as where nothing else is said.
impl From<SocketAddr> for Place {
    fn from(address: SocketAddr) -> Self {
        let fabric = Fabric::Tcp;
        Self { fabric, address }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fabric {
            Fabric::Tcp => self.address.fmt(f),
            other => write!(f, "{}://{}", other.name(), self.address),
        }
    }
}

impl FromStr for Place {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (fabric, address) = match text.strip_prefix("rdma://") {
            Some(address) => (Fabric::Rdma, address),
            None => (Fabric::Tcp, text.strip_prefix("tcp://").unwrap_or(text)),
        };
        let address = address
            .parse()
            .map_err(|_| "write IP:PORT or [IPv6]:PORT, for example 0.0.0.0:4420; rdma://IP:PORT for NVMe/RDMA")?;
        Ok(Self { fabric, address })
    }
}

#[cfg(test)]
mod tests {
    use super::{Fabric, Place};

    #[test]
    fn a_place_is_read_as_it_is_written() {
        let place = |fabric, address: &str| Place {
            fabric,
            address: address.parse().unwrap(),
        };
        for (text, expected) in [
            ("192.0.2.7:4420", place(Fabric::Tcp, "192.0.2.7:4420")),
            ("[2001:db8::7]:0", place(Fabric::Tcp, "[2001:db8::7]:0")),
            (
                "rdma://192.0.2.7:4420",
                place(Fabric::Rdma, "192.0.2.7:4420"),
            ),
            (
                "rdma://[2001:db8::7]:4420",
                place(Fabric::Rdma, "[2001:db8::7]:4420"),
            ),
        ] {
            assert_eq!(text.parse(), Ok(expected), "{text}");
            assert_eq!(expected.to_string(), text);
        }
        assert_eq!(
            "tcp://192.0.2.7:1".parse(),
            Ok(place(Fabric::Tcp, "192.0.2.7:1"))
        );
        for wrong in [
            "",
            "rdma://",
            "rdma:192.0.2.7:4420",
            "roce://192.0.2.7:1",
            "host:1",
        ] {
            assert!(wrong.parse::<Place>().is_err(), "{wrong}");
        }
    }
}
