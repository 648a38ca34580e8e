//! Who asks, and what they may.

use admin_proto::v1::Reason;
use tonic::transport::server::TlsConnectInfo;
use tonic::{Request, Status};
use x509_parser::extensions::GeneralName;

use super::connections::{Client, Peer, Process};
use crate::config::AdminTcpConfig;
use crate::manage::ManageError;

/// What somebody may. Each may what those before it may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Look, and subscribe.
    #[default]
    Read,
    /// Publish, too.
    Announce,
    /// Everything.
    Change,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Announce => "announce",
            Self::Change => "change",
        }
    }
}

/// Which names of certificates have which role.
#[derive(Clone, Debug, Default)]
pub struct Roles {
    announce: Vec<String>,
    change: Vec<String>,
}

impl Roles {
    /// As the configuration says.
    pub fn of(config: Option<&AdminTcpConfig>) -> Self {
        config.map_or_else(Self::default, |tcp| Self {
            announce: tcp.announce.clone(),
            change: tcp.change.clone(),
        })
    }

    /// The highest that one of the names has, and which one it is; the first where it is nothing special.
    fn of_names<'n>(&self, names: &'n [String]) -> (Role, &'n str) {
        let among = |list: &[String]| names.iter().find(|name| list.contains(name));
        if let Some(name) = among(&self.change) {
            (Role::Change, name)
        } else if let Some(name) = among(&self.announce) {
            (Role::Announce, name)
        } else {
            (Role::Read, names.first().map_or("", String::as_str))
        }
    }
}

/// Whoever asks.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    /// As events say it.
    pub actor: String,
    role: Role,
    /// The names in the certificate; none of a process of this machine.
    names: Vec<String>,
}

impl Caller {
    /// That it may do what needs this role.
    ///
    /// # Errors
    /// PERMISSION_DENIED, with the role that is missing.
    pub fn may(&self, needed: Role) -> Result<(), ManageError> {
        if self.role >= needed {
            return Ok(());
        }
        let text = format!(
            "{:?} has the role `{}` and this needs `{}`; the configuration gives it to names of certificates ([admin] tls-{})",
            self.actor,
            self.role.name(),
            needed.name(),
            needed.name()
        );
        Err(ManageError::new(Reason::Role, text))
    }

    /// The name of its certificate that events have, too; none of a process of this machine.
    pub fn certificate_name(&self) -> Option<&str> {
        (!self.names.is_empty()).then_some(self.actor.as_str())
    }

    /// One with a certificate of this name, which may look.
    #[cfg(test)]
    pub fn of_name(name: &str) -> Caller {
        Caller {
            actor: name.to_owned(),
            role: Role::Read,
            names: vec![name.to_owned()],
        }
    }

    /// Whether its certificate proves this name.
    pub fn is_proven(&self, name: &str) -> bool {
        self.names.iter().any(|it| it == name)
    }
}

/// Lets the daemon's own user and root in, and whom TLS has let in, and notes who it is. The socket's mode says the same; this holds also where its folder was
/// copied or its mode changed.
pub fn check(mut request: Request<()>, roles: &Roles) -> Result<Request<()>, Status> {
    let own = nix::unistd::geteuid().as_raw();
    let extensions = request.extensions();
    let over_tls = extensions.get::<TlsConnectInfo<Client>>();
    let client = over_tls.map(TlsConnectInfo::get_ref);
    let client = client.or_else(|| extensions.get::<Client>()).cloned();
    let caller = match client.as_ref().map(|client| client.peer) {
        Some(Peer::Tls(_)) => of_certificate(&request, roles)?,
        Some(Peer::Local(Some(process))) if process.uid == own || process.uid == 0 => Caller {
            actor: actor_of(&process),
            role: Role::Change,
            names: Vec::new(),
        },
        Some(Peer::Local(Some(Process { uid, .. }))) => {
            return Err(refused(&format!(
                "user {uid} may not ask this daemon, which is user {own}'s; ask as that user or as root"
            )));
        }
        _ => {
            return Err(refused(
                "the system does not say who asks; connect to the Unix socket directly",
            ));
        }
    };
    if let Some(client) = client {
        client.asks();
    }
    request.extensions_mut().insert(caller);
    Ok(request)
}

fn actor_of(process: &Process) -> String {
    match process.pid {
        Some(pid) => format!("uid {} pid {pid}", process.uid),
        None => format!("uid {}", process.uid),
    }
}

fn of_certificate(request: &Request<()>, roles: &Roles) -> Result<Caller, Status> {
    let info = request.extensions().get::<TlsConnectInfo<Client>>();
    let certificates = info.and_then(TlsConnectInfo::peer_certs);
    let first = certificates.as_ref().and_then(|all| all.first());
    let names = first.map(|certificate| names_in(certificate));
    let Some(names) = names.filter(|names| !names.is_empty()) else {
        return Err(refused(
            "the certificate names nobody: give it a common name or an alternative name",
        ));
    };
    let (role, actor) = roles.of_names(&names);
    Ok(Caller {
        actor: actor.to_owned(),
        role,
        names,
    })
}

/// The common names and alternative names (DNS, URI) of a certificate in DER.
fn names_in(certificate: &[u8]) -> Vec<String> {
    let Ok((_, certificate)) = x509_parser::parse_x509_certificate(certificate) else {
        return Vec::new();
    };
    let subject = certificate.subject();
    let common = subject.iter_common_name().filter_map(|it| it.as_str().ok());
    let mut names: Vec<String> = common.map(str::to_owned).collect();
    if let Ok(Some(alternative)) = certificate.subject_alternative_name() {
        let others = alternative.value.general_names.iter();
        names.extend(others.filter_map(|name| match name {
            GeneralName::DNSName(name) | GeneralName::URI(name) => Some((*name).to_owned()),
            _ => None,
        }));
    }
    names
}

/// When a certificate in PEM expires, in seconds since 1970.
pub fn expiry_of(pem: &[u8]) -> Option<i64> {
    let (_, pem) = x509_parser::pem::parse_x509_pem(pem).ok()?;
    let certificate = pem.parse_x509().ok()?;
    Some(certificate.validity().not_after.timestamp())
}

fn refused(text: &str) -> Status {
    ManageError::new(Reason::Peer, text).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: &[u8] = include_bytes!("../../tests/serve/tls/client.pem");

    #[test]
    fn only_the_daemons_user_and_root_are_let_in() {
        let own = nix::unistd::geteuid().as_raw();
        let user = |uid| Peer::Local(Some(Process { uid, pid: Some(7) }));
        let asked = |peer: Option<Peer>| {
            let mut request = Request::new(());
            peer.map(|peer| request.extensions_mut().insert(Client::of(peer)));
            let checked = check(request, &Roles::default());
            let caller = checked.map(|it| it.extensions().get::<Caller>().unwrap().clone());
            caller.map(|it| it.actor).map_err(|status| status.code())
        };
        assert_eq!(asked(Some(user(own))), Ok(format!("uid {own} pid 7")));
        assert_eq!(asked(Some(user(0))), Ok("uid 0 pid 7".to_owned()));
        let denied = Err(tonic::Code::PermissionDenied);
        assert_eq!(asked(Some(user(own + 1))), denied);
        assert_eq!(asked(Some(Peer::Local(None))), denied);
        let tls = Peer::Tls(([127, 0, 0, 1], 7).into());
        assert_eq!(asked(Some(tls)), denied, "without a certificate");
        assert_eq!(asked(None), denied);
    }

    #[test]
    fn a_role_goes_with_a_name_of_the_certificate() {
        let (_, pem) = x509_parser::pem::parse_x509_pem(CLIENT).unwrap();
        let names = names_in(&pem.contents);
        assert_eq!(names, ["test client", "localhost"]);
        assert_eq!(names_in(b"no certificate"), [""; 0]);
        let roles = Roles {
            announce: vec!["localhost".to_owned()],
            change: vec!["operator".to_owned()],
        };
        // Events have the name by which the right came.
        assert_eq!(roles.of_names(&names), (Role::Announce, "localhost"));
        let named = |name: &str| [name.to_owned(), "other".to_owned()];
        let (operator, somebody) = (named("operator"), named("somebody"));
        assert_eq!(roles.of_names(&operator), (Role::Change, "operator"));
        assert_eq!(roles.of_names(&somebody), (Role::Read, "somebody"));
        let caller = Caller {
            actor: "test client".to_owned(),
            role: Role::Announce,
            names,
        };
        assert!(caller.may(Role::Read).is_ok() && caller.may(Role::Announce).is_ok());
        let refused = caller.may(Role::Change).unwrap_err();
        assert_eq!(refused.reason, Reason::Role);
        assert!(refused.to_string().contains("needs `change`"), "{refused}");
        assert!(caller.is_proven("localhost") && !caller.is_proven("nqn.a"));
    }

    #[test]
    fn a_certificate_says_when_it_expires() {
        // 2126-10-28 17:07:48 UTC, as openssl says it.
        assert_eq!(expiry_of(CLIENT), Some(4_948_880_868));
        assert_eq!(expiry_of(b"nothing"), None);
    }
}
