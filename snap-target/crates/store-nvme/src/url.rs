//! The address of a remote namespace as one line of text.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;
use std::time::Duration;

use nvme::nqn::Nqn;
use nvme_spec::tcp::PORT_IO;

use crate::OptionsError;
use crate::options::{PATHS_MAX, Policy, RemoteOptions};

/// `nvme+TRANSPORT://HOST[:PORT][,HOST[:PORT]...]/SUBNQN[?nsid=N&paths=discovered&policy=P&digests=D&kato=T&timeout=T&margin=T&patience=T]`: a
/// namespace, and the paths to it. A time T is a number with `ms` or `s`.
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
    /// What is to take how long; together they are checked ([`RemoteOptions::check`]).
    pub times: Times,
}

/// The times of a URL: those that are not named are [`RemoteOptions::new`]'s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// `kato=`: [`RemoteOptions::keep_alive`].
    pub keep_alive: Option<Duration>,
    /// `timeout=`: [`RemoteOptions::command_timeout`].
    pub command_timeout: Option<Duration>,
    /// `margin=`: [`RemoteOptions::quiesce_margin`].
    pub quiesce_margin: Option<Duration>,
    /// `patience=`: [`RemoteOptions::deadline`].
    pub deadline: Option<Duration>,
}

impl Times {
    /// Puts them into the options of a store.
    pub fn apply(&self, options: &mut RemoteOptions) {
        for (time, option) in [
            (self.keep_alive, &mut options.keep_alive),
            (self.command_timeout, &mut options.command_timeout),
            (self.quiesce_margin, &mut options.quiesce_margin),
            (self.deadline, &mut options.deadline),
        ] {
            if let Some(time) = time {
                *option = time;
            }
        }
    }

    /// As a URL has them.
    fn named(&self) -> [(&'static str, Option<Duration>); 4] {
        [
            ("kato", self.keep_alive),
            ("timeout", self.command_timeout),
            ("margin", self.quiesce_margin),
            ("patience", self.deadline),
        ]
    }
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
        "'{0}' is not known: nsid=N, paths=discovered, policy=round-robin or queue-depth, digests=none, data or both, and the times kato=, timeout=, margin=, patience="
    )]
    Parameter(String),
    /// `digests=` for RDMA.
    #[error(
        "digests are NVMe/TCP's; over RDMA the network's own checksum covers each packet: leave digests= out"
    )]
    DigestsOverRdma,
    /// A time without a unit, or no number.
    #[error("'{0}' is no time from 1ms to 60s: write 800ms, or 5s")]
    Time(String),
    /// Times that do not fit together.
    #[error(transparent)]
    Times(#[from] OptionsError),
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

    /// The addresses of its hosts: all that a name has, each once, and as many as a store has paths. Blocks.
    ///
    /// # Errors
    /// [`ResolveError`].
    pub fn resolve(&self) -> Result<Vec<SocketAddr>, ResolveError> {
        self.resolve_by(|host, port| Ok((host, port).to_socket_addrs()?.collect()))
    }

    fn resolve_by(
        &self,
        addresses_of: impl Fn(&str, u16) -> std::io::Result<Vec<SocketAddr>>,
    ) -> Result<Vec<SocketAddr>, ResolveError> {
        let mut all: Vec<SocketAddr> = Vec::new();
        for (host, port) in &self.hosts {
            let failed = |why: String| ResolveError {
                host: host.clone(),
                why,
            };
            let found = addresses_of(host, *port).map_err(|error| failed(error.to_string()))?;
            if found.is_empty() {
                return Err(failed("it has no address".to_owned()));
            }
            for address in found {
                if !all.contains(&address) {
                    all.push(address);
                }
            }
        }
        all.truncate(PATHS_MAX);
        Ok(all)
    }

    /// Whether its times fit together, with the others as they are without it.
    fn check_times(&self) -> Result<(), OptionsError> {
        let mut options = RemoteOptions::new(self.subnqn.clone(), [0; 16]);
        self.times.apply(&mut options);
        options.check()
    }
}

/// A number with its unit.
fn parse_time(text: &str) -> Option<Duration> {
    const TIME_MAX: Duration = Duration::from_secs(60);
    let (digits, ms) = match text.strip_suffix("ms") {
        Some(digits) => (digits, 1),
        None => (text.strip_suffix('s')?, 1000),
    };
    let time = digits.parse::<u64>().ok()?.checked_mul(ms)?;
    let time = Duration::from_millis(time);
    (time > Duration::ZERO && time <= TIME_MAX).then_some(time)
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
            times: Times::default(),
        };
        for parameter in query.split('&').filter(|part| !part.is_empty()) {
            url.set(parameter)?;
        }
        if url.is_rdma() && url.digests.is_some() {
            return Err(UrlError::DigestsOverRdma);
        }
        url.check_times()?;
        Ok(url)
    }
}

impl RemoteUrl {
    fn set(&mut self, parameter: &str) -> Result<(), UrlError> {
        let unknown = || UrlError::Parameter(parameter.to_owned());
        let time_of = |time: &str| parse_time(time).ok_or_else(|| UrlError::Time(time.to_owned()));
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
            ("kato", time) => self.times.keep_alive = Some(time_of(time)?),
            ("timeout", time) => self.times.command_timeout = Some(time_of(time)?),
            ("margin", time) => self.times.quiesce_margin = Some(time_of(time)?),
            ("patience", time) => self.times.deadline = Some(time_of(time)?),
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
        for (name, time) in self.times.named() {
            if let Some(time) = time {
                parameter(name, format!("{}ms", time.as_millis()))?;
            }
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
            "nvme+tcp://store:1/nqn.2026-11.io.xio:a?kato=2000ms&timeout=3000ms&margin=500ms&patience=9000ms",
        ] {
            let url: RemoteUrl = text.parse().unwrap();
            assert_eq!(url.to_string(), text);
        }
    }

    #[test]
    fn times_are_the_options_and_are_checked_together() {
        let of = |times: &str| format!("nvme+tcp://a/nqn.2026-11.io.xio:a?{times}").parse();
        let url: RemoteUrl = of("kato=2s&timeout=800ms&margin=1s&patience=12s").unwrap();
        let mut options = RemoteOptions::new(url.subnqn.clone(), [0; 16]);
        url.times.apply(&mut options);
        let ms = |time: Duration| time.as_millis();
        assert_eq!(
            (ms(options.keep_alive), ms(options.command_timeout)),
            (2000, 800)
        );
        assert_eq!(
            (ms(options.quiesce_margin), ms(options.deadline)),
            (1000, 12_000)
        );
        for text in ["5", "5m", "0s", "-1s", "61s", "1.5s", "s", "ms"] {
            let error: Result<RemoteUrl, UrlError> = of(&format!("margin={text}"));
            assert_eq!(error, Err(UrlError::Time(text.to_owned())));
        }
        for (times, words) in [
            ("patience=26s", "over the limit of 25s"),
            (
                "patience=18s",
                "8s (command timeout) + 10s (keep-alive, the controller's quiesce time, margin)",
            ),
            ("kato=12s", "must be below the deadline of 25s"),
        ] {
            let error: Result<RemoteUrl, UrlError> = of(times);
            let error = error.unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        assert!(of("patience=19s").is_ok());
    }

    #[test]
    fn every_address_of_a_name_is_a_path() {
        let url: RemoteUrl = "nvme+tcp://two,many,two:1/nqn.2026-11.io.xio:a"
            .parse()
            .unwrap();
        let resolved = url.resolve_by(|host, port| {
            let count = if host == "two" { 2 } else { 9 };
            let third = if host == "two" { 3 } else { 4 };
            let of = |last: u8| SocketAddr::from(([10, 0, third, last], port));
            // A name may have an address twice.
            Ok((0..count).chain([0]).map(of).collect())
        });
        let resolved = resolved.unwrap();
        assert_eq!(resolved.len(), PATHS_MAX);
        let first: Vec<String> = resolved.iter().take(3).map(SocketAddr::to_string).collect();
        assert_eq!(first, ["10.0.3.0:4420", "10.0.3.1:4420", "10.0.4.0:4420"]);
        let none = url.resolve_by(|_, _| Ok(Vec::new()));
        assert_eq!(none.unwrap_err().host, "two");
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
