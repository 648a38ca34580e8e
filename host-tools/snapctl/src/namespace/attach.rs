//! `snapctl namespace attach`.

use admin_proto::mixed_parts;
use admin_proto::v1;
use admin_proto::v1::source::Kind;
use admin_proto::v1::{ErrorDetail, NamespaceState, ObjectKind, Reason, WriteProtection};
use clap::Args;
use printout::size::Size;
use store::decorate::Limit;
use tonic::Code;

use super::shown;
use super::visibility::Audience;
use crate::connection::Daemon;
use crate::context::Context;
use crate::ensure::{Comparison, Ensure};
use crate::failure::Failure;
use crate::text;

const ATTACH_HELP: &str = "\
Paths are those of the daemon's machine. A bare path is a volume made by `xio pack`, served decoded and read-only; file:PATH is a file or block device,
byte for byte; mem:SIZE is memory that ends with the daemon, for measuring: a block that is read while another host writes it may come partly old and
partly new; null:SIZE reads zeros, void:SIZE nothing that means anything. mixed:PART+PART is one disk of 2 to 16 of these, one behind another: writes to a volume's blocks are refused, those to
others are taken (a + in a path is written ++). stripe:UNIT:STORE+STORE is one disk whose bytes are spread over 2 to 16 stores in units of UNIT, and
stripe:new:UNIT:STORE+STORE makes it of blank ones first; replicas:STORE+STORE reads the same bytes from whichever store answers. In front of both, volume:
means the volume in them, decoded. Their stores are file:PATH and remote namespaces (nvme++tcp://HOST/SUBNQN?nsid=N: a + is written ++).
What is --immutable takes no writes, and is fetched ahead of its readers; that of a volume is so anyway.
Unless hosts are named, all that may connect to the subsystem see it.
With --ensure, a namespace of the subsystem with this source is what is asked for, whatever its number where --nsid does not say it.

Examples:
  snapctl namespace attach nqn.2026-11.org.example:data /srv/tokens.xio
  snapctl namespace attach nqn.2026-11.org.example:data file:/dev/sdb \\
      --lba 512 --nsid 7
  snapctl namespace attach nqn.2026-11.org.example:data mem:512MiB \\
      --host nqn.2026-11.org.example:trainer1
  snapctl namespace attach nqn.2026-11.org.example:data \\
      mixed:/srv/tokens.xio+file:/srv/scratch.raw
  snapctl namespace attach nqn.2026-11.org.example:data \\
      stripe:new:64KiB:file:/dev/sdb+file:/dev/sdc
  snapctl namespace attach nqn.2026-11.org.example:data \\
      volume:replicas:file:/srv/a.xio+file:/mnt/b.xio
  snapctl namespace attach nqn.2026-11.org.example:data file:/srv/tokens.xio \\
      --immutable --limit 200MB/s,latency=2ms
  snapctl namespace attach nqn.2026-11.org.example:data /srv/tokens.xio \\
      --nsid 1 --ensure";

/// `snapctl namespace attach`.
#[derive(Debug, Args)]
#[command(after_help = ATTACH_HELP)]
pub struct Attach {
    /// To which subsystem
    #[arg(value_name = "SUBSYSTEM")]
    pub subsystem_nqn: String,

    /// A volume's path, file:PATH, mem:SIZE, null:SIZE, void:SIZE, mixed:PART+PART, stripe:UNIT:STORE+STORE or replicas:STORE+STORE
    pub source: String,

    /// Its number; otherwise the lowest free one
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=0xFFFF_FFFE))]
    pub nsid: Option<u32>,

    /// Logical block size, 512 or 4096; a volume has its own
    #[arg(long, value_name = "BYTES", value_parser = lba_bytes)]
    pub lba: Option<u32>,

    /// No host may write
    #[arg(long)]
    pub read_only: bool,

    /// Nobody writes, here or elsewhere: a raw store is read ahead, as a volume is. No host may write
    #[arg(long)]
    pub immutable: bool,

    /// Its stores are no faster than RATE[,burst=SIZE][,latency=TIME], to see what a slow line does
    #[arg(long, value_name = "RATE")]
    pub limit: Option<Limit>,

    /// Who sees it.
    #[command(flatten)]
    pub hosts: Audience,

    /// Whether it may be there.
    #[command(flatten)]
    pub ensure: Ensure,
}

/// The revision of the contract that knows immutable namespaces and limits.
const IMMUTABLE_REVISION: u32 = 5;

fn lba_bytes(text: &str) -> Result<u32, String> {
    match text {
        "512" => Ok(512),
        "4096" | "4KiB" => Ok(4096),
        _ => Err("it is 512 or 4096".to_owned()),
    }
}

/// Runs it.
pub async fn run(arguments: Attach, context: &Context) -> Result<(), Failure> {
    let daemon = context.daemon().await?;
    if arguments.ensure.ensure
        && let Some(answer) = there(&arguments, &daemon).await?
    {
        return context.show(&answer, already);
    }
    let newer = [
        ("--immutable", arguments.immutable),
        ("--limit", arguments.limit.is_some()),
    ];
    if let Some((flag, _)) = newer.into_iter().find(|(_, is_asked)| *is_asked) {
        daemon.needs(IMMUTABLE_REVISION, flag).await?;
    }
    let request = v1::AttachNamespaceRequest {
        subsystem_nqn: arguments.subsystem_nqn.clone(),
        nsid: arguments.nsid.unwrap_or(0),
        source: Some(v1::Source {
            kind: Some(Kind::Text(arguments.source.clone())),
        }),
        lba_bytes: arguments.lba.unwrap_or(0),
        read_only: arguments.read_only,
        visible_to: arguments.hosts.visibility(),
        immutable: arguments.immutable,
        limit: arguments
            .limit
            .map_or_else(String::new, |limit| limit.to_string()),
    };
    let attached = daemon
        .answer(daemon.namespace().attach_namespace(request))
        .await;
    match attached {
        Ok(answer) => context.show(&answer, |answer| {
            let namespace = answer.namespace.clone().unwrap_or_default();
            format!("attached {} {}\n", namespace.source_text, place(&namespace))
        }),
        // Somebody was quicker: what is there now is held against what was asked for.
        Err(refused)
            if arguments.ensure.ensure
                && matches!(refused.reason(), Reason::NsidTaken | Reason::SourceInUse) =>
        {
            let found = there(&arguments, &daemon).await?;
            let answer = found.ok_or(refused)?;
            context.show(&answer, already)
        }
        Err(refused) => Err(refused),
    }
}

fn already(answer: &v1::AttachNamespaceResponse) -> String {
    let namespace = answer.namespace.clone().unwrap_or_default();
    let (source, place) = (&namespace.source_text, place(&namespace));
    format!("{source} is attached already {place}\n")
}

fn place(namespace: &v1::Namespace) -> String {
    let (nsid, subsystem) = (namespace.nsid, &namespace.subsystem_nqn);
    let (size, uuid) = (Size(namespace.bytes), &namespace.uuid);
    format!("as nsid {nsid} of {subsystem}: {size}, uuid {uuid}")
}

/// The namespace that is asked for, where it is there; none where nothing is in its way. Fails where another one has its number, it has other
/// properties, or it is not served.
async fn there(
    asked: &Attach,
    daemon: &Daemon,
) -> Result<Option<v1::AttachNamespaceResponse>, Failure> {
    let list = shown::all(daemon, &asked.subsystem_nqn).await?;
    // One that closes is on its way out: the daemon says what becomes of another one.
    let mut open = list
        .namespaces
        .iter()
        .filter(|namespace| namespace.state() != NamespaceState::Closing);
    let found = open.find(|namespace| match asked.nsid {
        Some(nsid) => namespace.nsid == nsid,
        None => is_source(namespace, &asked.source),
    });
    let Some(namespace) = found else {
        return Ok(None);
    };
    let key = format!("{} {}", namespace.subsystem_nqn, namespace.nsid);
    let detail = |reason: Reason| ErrorDetail {
        reason: reason.into(),
        field: String::new(),
        object_kind: ObjectKind::Namespace.into(),
        object_key: key.clone(),
    };
    let subject = format!("nsid {} of {}", namespace.nsid, namespace.subsystem_nqn);
    compare(asked, namespace).verdict(&subject, detail(Reason::NsidTaken))?;
    let is_served = [NamespaceState::Ready, NamespaceState::Degraded];
    if !is_served.contains(&namespace.state()) {
        let why = &namespace.state_detail;
        let message = format!("{subject} is there as asked for, and is not served: {why}");
        return Err(
            Failure::of(Code::FailedPrecondition, message).detailed(detail(Reason::NotServed))
        );
    }
    Ok(Some(v1::AttachNamespaceResponse {
        namespace: Some(namespace.clone()),
        as_of: list.as_of.clone(),
    }))
}

/// What kind of store without a place a source names, and its bytes: sizes can be written in several ways. The units are those that the daemon takes.
fn size_of(source: &str) -> Option<(&str, u64)> {
    let (kind @ ("mem" | "null" | "void"), size) = source.split_once(':')? else {
        return None;
    };
    let (digits, unit) = size.split_at(
        size.find(|it: char| !it.is_ascii_digit())
            .unwrap_or(size.len()),
    );
    let unit: u64 = match unit {
        "" | "B" => 1,
        "KiB" | "K" | "k" => 1 << 10,
        "MiB" | "M" => 1 << 20,
        "GiB" | "G" => 1 << 30,
        "TiB" | "T" => 1 << 40,
        "kB" | "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        _ => return None,
    };
    let bytes = digits.parse::<u64>().ok()?.checked_mul(unit)?;
    Some((kind, bytes))
}

/// Whether the namespace has this source: of a mixed one, part by part.
fn is_source(namespace: &v1::Namespace, source: &str) -> bool {
    let Some(parts) = mixed_parts(source) else {
        let (text, path) = (&namespace.source_text, &namespace.path);
        return is_plain_source(text, path, namespace.kind(), source);
    };
    let is_part = |(part, source): (&v1::NamespacePart, &String)| {
        is_plain_source(&part.source_text, &part.path, part.kind(), source)
    };
    let is_each = namespace.parts.iter().zip(&parts).all(is_part);
    namespace.source_text == source || parts.len() == namespace.parts.len() && is_each
}

/// Whether what is served is this source, as it was written, by its size, or by its path.
fn is_plain_source(text: &str, path: &str, kind: v1::NamespaceKind, source: &str) -> bool {
    let (asked_path, asked_kind) = match source.strip_prefix("file:") {
        Some(path) => (path, v1::NamespaceKind::Raw),
        None => (source, v1::NamespaceKind::View),
    };
    let is_path = !path.is_empty() && path == asked_path;
    let size = size_of(source);
    let is_size = size.is_some() && size == size_of(text);
    text == source || is_size || (is_path && kind == asked_kind)
}

/// What was said of it, held against what it is.
fn compare(asked: &Attach, is: &v1::Namespace) -> Comparison {
    let mut comparison = Comparison::default();
    let source = if is_source(is, &asked.source) {
        asked.source.clone()
    } else {
        is.source_text.clone()
    };
    comparison.property("its source", Some(asked.source.clone()), source);
    comparison.property("its block size", asked.lba, is.lba_bytes);
    let read_only = shown::writes(WriteProtection::ReadOnly.into());
    comparison.property(
        "whether hosts may write",
        (asked.read_only || asked.immutable).then_some(read_only),
        shown::writes(is.write_protection),
    );
    comparison.property(
        "whether it is immutable",
        asked.immutable.then_some("yes"),
        if is.immutable { "yes" } else { "no" },
    );
    // Written in another way it is the same.
    let limit = match is.limit.parse::<Limit>() {
        Ok(limit) => limit.to_string(),
        Err(_) if is.limit.is_empty() => "none".to_owned(),
        Err(_) => is.limit.clone(),
    };
    comparison.property(
        "its limit",
        asked.limit.map(|limit| limit.to_string()),
        limit,
    );
    let visibility = asked.hosts.visibility();
    comparison.property(
        "who sees it",
        visibility.map(|visibility| text::seen_by(Some(&sorted(visibility)))),
        text::seen_by(is.visible_to.clone().map(sorted).as_ref()),
    );
    comparison
}

/// The same hosts, by name: a list has no order.
fn sorted(mut visibility: v1::Visibility) -> v1::Visibility {
    if let Some(v1::visibility::To::Only(list)) = &mut visibility.to {
        list.nqns.sort_unstable();
    }
    visibility
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_known_by_its_text_its_size_and_its_path() {
        let namespace = |source: &str, path: &str, kind: v1::NamespaceKind| v1::Namespace {
            source_text: source.to_owned(),
            path: path.to_owned(),
            kind: kind.into(),
            ..v1::Namespace::default()
        };
        let raw = namespace("file:disk.raw", "/srv/disk.raw", v1::NamespaceKind::Raw);
        let view = namespace("tokens.xio", "/srv/tokens.xio", v1::NamespaceKind::View);
        let memory = namespace("mem:1GiB", "", v1::NamespaceKind::Raw);
        let void = namespace("void:1GiB", "", v1::NamespaceKind::Raw);
        for (namespace, source, is) in [
            (&raw, "file:disk.raw", true),
            (&raw, "file:/srv/disk.raw", true),
            (&raw, "/srv/disk.raw", false),
            (&view, "/srv/tokens.xio", true),
            (&view, "file:/srv/tokens.xio", false),
            (&memory, "mem:1GiB", true),
            (&memory, "mem:1024MiB", true),
            (&memory, "mem:1073741824", true),
            (&memory, "mem:1GB", false),
            (&memory, "null:1GiB", false),
            (&void, "void:1024MiB", true),
            (&void, "null:1GiB", false),
            (&memory, "mem:1Gib", false),
            (&memory, "", false),
        ] {
            assert_eq!(is_source(namespace, source), is, "{source}");
        }
    }

    #[test]
    fn a_mixed_source_is_known_by_its_parts() {
        let part = |source: &str, path: &str, kind: v1::NamespaceKind| v1::NamespacePart {
            source_text: source.to_owned(),
            path: path.to_owned(),
            kind: kind.into(),
            ..v1::NamespacePart::default()
        };
        let mixed = v1::Namespace {
            source_text: "mixed:/srv/a++b.xio+mem:1GiB".to_owned(),
            kind: v1::NamespaceKind::Mixed.into(),
            parts: vec![
                part("/srv/a+b.xio", "/srv/a+b.xio", v1::NamespaceKind::View),
                part("mem:1GiB", "", v1::NamespaceKind::Raw),
            ],
            ..v1::Namespace::default()
        };
        for (source, is) in [
            ("mixed:/srv/a++b.xio+mem:1GiB", true),
            ("mixed:/srv/a++b.xio+mem:1024MiB", true),
            ("mixed:/srv/a++b.xio+mem:1GB", false),
            ("mixed:/srv/a++b.xio", false),
            ("mixed:/srv/a++b.xio+mem:1GiB+mem:1GiB", false),
            ("mixed:mem:1GiB+/srv/a++b.xio", false),
            ("mixed:/srv/a+b.xio+mem:1GiB", false),
            ("/srv/a+b.xio", false),
        ] {
            assert_eq!(is_source(&mixed, source), is, "{source}");
        }
        let unknown = v1::Namespace {
            parts: Vec::new(),
            ..mixed
        };
        assert!(is_source(&unknown, "mixed:/srv/a++b.xio+mem:1GiB"));
        assert!(!is_source(&unknown, "mixed:/srv/a++b.xio+mem:1024MiB"));
    }
}
