//! The address of a namespace as one line of text: `nvme+tcp://HOST[:PORT]/SUBNQN[?nsid=N]`.

use std::fmt;
use std::str::FromStr;

use nvme_spec::NQN_BYTES_MAX;
use nvme_spec::tcp::PORT_IO;

const SCHEME: &str = "nvme+tcp://";

/// Where a subsystem is reached, and which of its namespaces is meant.
///
/// ```
/// let url: initiator::Url = "nvme+tcp://[::1]:4420/nqn.2026-11.io.xio:tokens?nsid=2".parse()?;
/// assert_eq!(url.address(), "[::1]:4420");
/// assert_eq!(url.subnqn, "nqn.2026-11.io.xio:tokens");
/// assert_eq!(url.nsid, Some(2));
/// # Ok::<(), initiator::UrlError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// Host name or address; an IPv6 address without its brackets.
    pub host: String,
    /// TCP port; 4420 where the text has none.
    pub port: u16,
    /// The subsystem's NQN.
    pub subnqn: String,
    /// The namespace, where the text names one.
    pub nsid: Option<u32>,
}

/// Why a text is no [`Url`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// Another scheme, or none.
    #[error("'{0}' does not begin with nvme+tcp://; write nvme+tcp://HOST:PORT/SUBNQN?nsid=N")]
    Scheme(String),
    /// No host before the path.
    #[error("'{0}' names no host; write nvme+tcp://HOST:PORT/SUBNQN?nsid=N")]
    Host(String),
    /// A port that is no number from 1 to 65535.
    #[error("port '{0}' is not a number from 1 to 65535")]
    Port(String),
    /// The path is not one NQN of 1 to 223 bytes.
    #[error(
        "'{0}' is not a subsystem NQN: it needs 1 to {NQN_BYTES_MAX} bytes and begins with 'nqn.'"
    )]
    Nqn(String),
    /// `nsid=` is no number from 1 to 4294967294.
    #[error("nsid '{0}' is not a number from 1 to 4294967294")]
    Nsid(String),
    /// A parameter other than `nsid`.
    #[error("unknown parameter '{0}': only nsid=N is known")]
    Parameter(String),
}

impl Url {
    /// `host:port`, as [`std::net::ToSocketAddrs`] takes it.
    pub fn address(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

impl FromStr for Url {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Url, UrlError> {
        let rest = text
            .strip_prefix(SCHEME)
            .ok_or_else(|| UrlError::Scheme(text.to_owned()))?;
        let (authority, path) = rest
            .split_once('/')
            .ok_or_else(|| UrlError::Nqn(String::new()))?;
        let (host, port) = parse_authority(authority, text)?;
        let (subnqn, query) = match path.split_once('?') {
            Some((subnqn, query)) => (subnqn, Some(query)),
            None => (path, None),
        };
        check_nqn(subnqn)?;
        let nsid = query.map(parse_query).transpose()?.flatten();
        Ok(Url {
            host,
            port,
            subnqn: subnqn.to_owned(),
            nsid,
        })
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}", self.address(), self.subnqn)?;
        match self.nsid {
            Some(nsid) => write!(f, "?nsid={nsid}"),
            None => Ok(()),
        }
    }
}

fn parse_authority(authority: &str, whole: &str) -> Result<(String, u16), UrlError> {
    let no_host = || UrlError::Host(whole.to_owned());
    let (host, port) = match authority.strip_prefix('[') {
        Some(bracketed) => {
            let (host, after) = bracketed.split_once(']').ok_or_else(no_host)?;
            match after.strip_prefix(':') {
                Some(port) => (host, Some(port)),
                None if after.is_empty() => (host, None),
                None => return Err(no_host()),
            }
        }
        None => match authority.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    if host.is_empty() {
        return Err(no_host());
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

fn check_nqn(nqn: &str) -> Result<(), UrlError> {
    let well_formed = nqn.starts_with("nqn.")
        && nqn.len() <= NQN_BYTES_MAX
        && !nqn.bytes().any(|byte| byte <= b' ' || byte == b'/');
    if well_formed {
        Ok(())
    } else {
        Err(UrlError::Nqn(nqn.to_owned()))
    }
}

fn parse_query(query: &str) -> Result<Option<u32>, UrlError> {
    let mut nsid = None;
    for parameter in query.split('&').filter(|part| !part.is_empty()) {
        let Some(digits) = parameter.strip_prefix("nsid=") else {
            return Err(UrlError::Parameter(parameter.to_owned()));
        };
        nsid = match digits.parse::<u32>() {
            Ok(number) if number != 0 && number != u32::MAX => Some(number),
            _ => return Err(UrlError::Nsid(digits.to_owned())),
        };
    }
    Ok(nsid)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:1b4e28ba-2fa1-11d2-883f-0016d3cca427";

    #[test]
    fn every_part_is_taken_and_printed_again() {
        for (text, host, port, nsid) in [
            (
                "nvme+tcp://10.0.0.1:4421/NQN?nsid=7",
                "10.0.0.1",
                4421,
                Some(7),
            ),
            ("nvme+tcp://[fe80::1]:4420/NQN", "fe80::1", 4420, None),
        ] {
            let text = text.replace("NQN", NQN);
            let url: Url = text.parse().unwrap();
            assert_eq!((url.host.as_str(), url.port, url.nsid), (host, port, nsid));
            assert_eq!(url.subnqn, NQN);
            assert_eq!(url.to_string(), text);
        }
        let short: Url = format!("nvme+tcp://storage/{NQN}").parse().unwrap();
        assert_eq!(short.address(), "storage:4420");
        let short: Url = format!("nvme+tcp://[::1]/{NQN}?").parse().unwrap();
        assert_eq!(short.address(), "[::1]:4420");
    }

    #[test]
    fn each_fault_has_its_error() {
        let parse = |text: &str| text.replace("NQN", NQN).parse::<Url>().unwrap_err();
        assert!(matches!(parse("nbd://h/NQN"), UrlError::Scheme(_)));
        assert!(matches!(parse("nvme+tcp://:4420/NQN"), UrlError::Host(_)));
        assert!(matches!(parse("nvme+tcp://[::1/NQN"), UrlError::Host(_)));
        assert!(matches!(parse("nvme+tcp://[::1]x/NQN"), UrlError::Host(_)));
        assert_eq!(parse("nvme+tcp://h:0/NQN"), UrlError::Port("0".into()));
        assert_eq!(
            parse("nvme+tcp://h:65536/NQN"),
            UrlError::Port("65536".into())
        );
        assert!(matches!(parse("nvme+tcp://h"), UrlError::Nqn(_)));
        assert!(matches!(parse("nvme+tcp://h/"), UrlError::Nqn(_)));
        assert!(matches!(parse("nvme+tcp://h/tokens"), UrlError::Nqn(_)));
        assert!(matches!(parse("nvme+tcp://h/NQN/x"), UrlError::Nqn(_)));
        assert_eq!(parse("nvme+tcp://h/NQN?nsid=0"), UrlError::Nsid("0".into()));
        assert_eq!(
            parse("nvme+tcp://h/NQN?nsid=4294967295"),
            UrlError::Nsid("4294967295".into())
        );
        assert_eq!(
            parse("nvme+tcp://h/NQN?ns=1"),
            UrlError::Parameter("ns=1".into())
        );
        let long = format!("nvme+tcp://h/nqn.{}", "x".repeat(NQN_BYTES_MAX));
        assert!(matches!(parse(&long), UrlError::Nqn(_)));
    }
}
