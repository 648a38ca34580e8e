//! The address of a remote namespace as one line of text.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use nvme::nqn::Nqn;
use nvme_spec::tcp::PORT_IO;

use crate::options::{PATHS_MAX, Policy};

/// `nvme+TRANSPORT://HOST[:PORT][,HOST[:PORT]...]/SUBNQN[?nsid=N&paths=discovered&policy=P&digests=D]`: a namespace, and the paths to it.
///
/// ```
/// let url: store_nvme::RemoteUrl = "nvme+tcp://10.0.0.1,10.0.1.1:4421/nqn.2026-11.io.xio:tokens?nsid=2&policy=queue-depth".parse()?;
/// assert_eq!(url.transport, "tcp");
/// assert_eq!(url.hosts, [("10.0.0.1".to_owned(), 4420), ("10.0.1.1".to_owned(), 4421)]);
/// # Ok::<(), store_nvme::UrlError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteUrl {
    /// `tcp`, `rdma`: what carries the queues.
    pub transport: String,
    /// Host names or addresses, an IPv6 address without its brackets, and ports.
    pub hosts: Vec<(String, u16)>,
    /// The subsystem.
    pub subnqn: Nqn,
    /// The namespace; the only one where none is named.
    pub nsid: Option<u32>,
    /// The hosts are discovery services, which know the paths.
    pub is_discovered: bool,
    /// How paths share the work.
    pub policy: Option<Policy>,
    /// TCP: which digests are used.
    pub digests: Option<Digests>,
}

/// TCP: which digests are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Digests {
    /// None.
    None,
    /// Of data: what a user who says nothing gets.
    Data,
    /// Of headers and data.
    Both,
}

/// Why a text is no [`RemoteUrl`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// Another scheme, or none.
    #[error("it does not begin with nvme+tcp:// or nvme+rdma://")]
    Scheme,
    /// No host, or an empty one between commas.
    #[error("it names no host before the subsystem: write nvme+tcp://HOST:PORT/SUBNQN")]
    Host,
    /// More hosts than paths.
    #[error("it names {0} hosts, and a store has at most {PATHS_MAX} paths")]
    Hosts(usize),
    /// A port that is no number from 1 to 65535.
    #[error("port '{0}' is not a number from 1 to 65535")]
    Port(String),
    /// The path is not one NQN.
    #[error("'{0}' is not a subsystem NQN: it has 1 to 223 bytes and begins with 'nqn.'")]
    Nqn(String),
    /// `nsid=` is no number from 1 to 4294967294.
    #[error("nsid '{0}' is not a number from 1 to 4294967294")]
    Nsid(String),
    /// A parameter that is not known, or its value.
    #[error(
        "'{0}' is not known: nsid=N, paths=discovered, policy=round-robin or queue-depth, digests=none, data or both"
    )]
    Parameter(String),
    /// `digests=` for RDMA.
    #[error(
        "digests are NVMe/TCP's; over RDMA the network's own checksum covers each packet: leave digests= out"
    )]
    DigestsOverRdma,
}

/// A host of a URL that cannot be resolved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("host '{host}' cannot be resolved: {why}")]
pub struct ResolveError {
    /// As the URL names it.
    pub host: String,
    /// What the system says.
    pub why: String,
}

impl RemoteUrl {
    /// Whether a text is meant to be one.
    #[must_use]
    pub fn is_meant(text: &str) -> bool {
        text.starts_with("nvme+") && text.contains("://")
    }

    /// Whether its queues are connections of RDMA.
    #[must_use]
    pub fn is_rdma(&self) -> bool {
        self.transport == "rdma"
    }

    /// The addresses of its hosts, the first of each. Blocks.
    ///
    /// # Errors
    /// [`ResolveError`].
    pub fn resolve(&self) -> Result<Vec<SocketAddr>, ResolveError> {
        let resolve = |(host, port): &(String, u16)| {
            let failed = |why: String| ResolveError {
                host: host.clone(),
                why,
            };
            let mut found = (host.as_str(), *port)
                .to_socket_addrs()
                .map_err(|error| failed(error.to_string()))?;
            found
                .next()
                .ok_or_else(|| failed("it has no address".to_owned()))
        };
        self.hosts.iter().map(resolve).collect()
    }
}

impl FromStr for RemoteUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let rest = text.strip_prefix("nvme+").ok_or(UrlError::Scheme)?;
        let (transport, rest) = rest.split_once("://").ok_or(UrlError::Scheme)?;
        if !["tcp", "rdma"].contains(&transport) {
            return Err(UrlError::Scheme);
        }
        let (hosts, path) = rest.split_once('/').ok_or(UrlError::Host)?;
        let hosts: Vec<_> = hosts.split(',').map(parse_host).collect::<Result<_, _>>()?;
        if hosts.len() > PATHS_MAX {
            return Err(UrlError::Hosts(hosts.len()));
        }
        let (subnqn, query) = path.split_once('?').unwrap_or((path, ""));
        let mut url = RemoteUrl {
            transport: transport.to_owned(),
            hosts,
            subnqn: Nqn::parse(subnqn).map_err(|_| UrlError::Nqn(subnqn.to_owned()))?,
            nsid: None,
            is_discovered: false,
            policy: None,
            digests: None,
        };
        for parameter in query.split('&').filter(|part| !part.is_empty()) {
            url.set(parameter)?;
        }
        if url.is_rdma() && url.digests.is_some() {
            return Err(UrlError::DigestsOverRdma);
        }
        Ok(url)
    }
}

impl RemoteUrl {
    fn set(&mut self, parameter: &str) -> Result<(), UrlError> {
        let unknown = || UrlError::Parameter(parameter.to_owned());
        let (name, value) = parameter.split_once('=').ok_or_else(unknown)?;
        match (name, value) {
            ("nsid", digits) => {
                let nsid = digits
                    .parse()
                    .ok()
                    .filter(|nsid| (1..u32::MAX).contains(nsid));
                self.nsid = Some(nsid.ok_or_else(|| UrlError::Nsid(digits.to_owned()))?);
            }
            ("paths", "discovered") => self.is_discovered = true,
            ("policy", "round-robin") => self.policy = Some(Policy::RoundRobin),
            ("policy", "queue-depth") => self.policy = Some(Policy::QueueDepth),
            ("digests", "none") => self.digests = Some(Digests::None),
            ("digests", "data") => self.digests = Some(Digests::Data),
            ("digests", "both") => self.digests = Some(Digests::Both),
            _ => return Err(unknown()),
        }
        Ok(())
    }
}

fn parse_host(text: &str) -> Result<(String, u16), UrlError> {
    let (host, port) = match text.strip_prefix('[') {
        Some(bracketed) => {
            let (host, after) = bracketed.split_once(']').ok_or(UrlError::Host)?;
            match after.strip_prefix(':') {
                Some(port) => (host, Some(port)),
                None if after.is_empty() => (host, None),
                None => return Err(UrlError::Host),
            }
        }
        None => match text.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    if host.is_empty() {
        return Err(UrlError::Host);
    }
    let port = match port {
        None => PORT_IO,
        Some(digits) => match digits.parse() {
            Ok(port) if port != 0 => port,
            _ => return Err(UrlError::Port(digits.to_owned())),
        },
    };
    Ok((host.to_owned(), port))
}

impl fmt::Display for RemoteUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nvme+{}://", self.transport)?;
        for (index, (host, port)) in self.hosts.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            if host.contains(':') {
                write!(f, "{comma}[{host}]:{port}")?;
            } else {
                write!(f, "{comma}{host}:{port}")?;
            }
        }
        write!(f, "/{}", self.subnqn)?;
        let mut mark = '?';
        let mut parameter = |name: &str, value: String| {
            let written = write!(f, "{mark}{name}={value}");
            mark = '&';
            written
        };
        if let Some(nsid) = self.nsid {
            parameter("nsid", nsid.to_string())?;
        }
        if self.is_discovered {
            parameter("paths", "discovered".to_owned())?;
        }
        if let Some(policy) = self.policy {
            let name = match policy {
                Policy::RoundRobin => "round-robin",
                Policy::QueueDepth => "queue-depth",
            };
            parameter("policy", name.to_owned())?;
        }
        if let Some(digests) = self.digests {
            let name = match digests {
                Digests::None => "none",
                Digests::Data => "data",
                Digests::Both => "both",
            };
            parameter("digests", name.to_owned())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        for text in [
            "nvme+tcp://10.0.0.1:4420/nqn.2026-11.io.xio:a",
            "nvme+rdma://10.0.0.1:4420,[fe80::1]:4421/nqn.2026-11.io.xio:a?nsid=7",
            "nvme+tcp://store:1/nqn.2026-11.io.xio:a?nsid=1&paths=discovered&policy=queue-depth&digests=none",
        ] {
            let url: RemoteUrl = text.parse().unwrap();
            assert_eq!(url.to_string(), text);
        }
    }

    #[test]
    fn what_names_nothing_says_why() {
        let why = |text: &str| text.parse::<RemoteUrl>().unwrap_err();
        let nqn = "nqn.2026-11.io.xio:a";
        assert_eq!(why("nvme+quic://a/nqn.x"), UrlError::Scheme);
        assert_eq!(why("nvme+tcp://"), UrlError::Host);
        assert_eq!(why(&format!("nvme+tcp://a,,b/{nqn}")), UrlError::Host);
        assert_eq!(
            why(&format!("nvme+tcp://a:0/{nqn}")),
            UrlError::Port("0".to_owned())
        );
        let nine = ["a"; 9].join(",");
        assert_eq!(why(&format!("nvme+tcp://{nine}/{nqn}")), UrlError::Hosts(9));
        assert_eq!(why("nvme+tcp://a/disk"), UrlError::Nqn("disk".to_owned()));
        assert_eq!(
            why(&format!("nvme+tcp://a/{nqn}?nsid=0")),
            UrlError::Nsid("0".to_owned())
        );
        assert_eq!(
            why(&format!("nvme+rdma://a/{nqn}?digests=none")),
            UrlError::DigestsOverRdma
        );
        let parameter = "policy=best".to_owned();
        assert_eq!(
            why(&format!("nvme+tcp://a/{nqn}?{parameter}")),
            UrlError::Parameter(parameter)
        );
    }
}
