//! Functions of a running daemon: made, used by clients, deleted under them, and kept.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use admin_proto::v1;
use admin_proto::v1::controller_service_client::ControllerServiceClient;
use admin_proto::v1::function_service_client::FunctionServiceClient;
use tonic::Status;

use crate::admin::{Client, start, with_admin};
use crate::target::{Folder, NQN};

/// Commands of the protocol.
const VERSION: u16 = 1;
const REGION_READ: u16 = 9;
/// The version register of an NVMe controller, in BAR0.
const VS: u64 = 8;

/// What a virtual machine's monitor says to a function, written from the protocol's specification.
struct Monitor(UnixStream);

impl Monitor {
    /// Its first reply comes when there is a controller.
    fn connect(path: &Path) -> Monitor {
        let stream = UnixStream::connect(path).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let mut monitor = Monitor(stream);
        monitor.call(VERSION, b"\0\0\0\0{\"capabilities\":{}}\0");
        monitor
    }

    fn call(&mut self, command: u16, body: &[u8]) -> Vec<u8> {
        let mut message = Vec::new();
        message.extend(7_u16.to_le_bytes());
        message.extend(command.to_le_bytes());
        message.extend(u32::try_from(16 + body.len()).unwrap().to_le_bytes());
        message.extend([0; 8]);
        message.extend(body);
        self.0.write_all(&message).unwrap();
        let mut header = [0; 16];
        self.0.read_exact(&mut header).unwrap();
        assert_eq!(header[8] & 0x20, 0, "no error: {header:?}");
        let bytes = u32::from_le_bytes(header[4..8].try_into().unwrap());
        let mut body = vec![0; bytes as usize - 16];
        self.0.read_exact(&mut body).unwrap();
        body
    }

    /// The four bytes of a register.
    fn register(&mut self, at: u64) -> Vec<u8> {
        let mut asked = at.to_le_bytes().to_vec();
        // BAR0, four bytes.
        asked.extend([0, 0, 0, 0, 4, 0, 0, 0]);
        self.call(REGION_READ, &asked).split_off(16)
    }

    /// Waits for the end of the connection.
    fn is_let_go(&mut self) -> bool {
        match self.0.read(&mut [0; 1]) {
            Ok(bytes) => bytes == 0,
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        }
    }
}

fn create(client: &Client, name: &str, nqn: &str, socket: &str) -> Result<v1::Function, Status> {
    let request = v1::CreateFunctionRequest {
        name: name.to_owned(),
        subsystem_nqn: nqn.to_owned(),
        socket: socket.to_owned(),
        ..v1::CreateFunctionRequest::default()
    };
    let made = client.call(async |channel| {
        FunctionServiceClient::new(channel)
            .create_function(request)
            .await
    })?;
    Ok(made.function.unwrap())
}

fn delete(client: &Client, name: &str) -> Result<v1::DeleteFunctionResponse, Status> {
    let request = v1::DeleteFunctionRequest {
        name: name.to_owned(),
    };
    client.call(async |channel| {
        FunctionServiceClient::new(channel)
            .delete_function(request)
            .await
    })
}

fn list(client: &Client) -> Vec<v1::Function> {
    let request = v1::ListFunctionsRequest::default();
    let listed = client.call(async |channel| {
        FunctionServiceClient::new(channel)
            .list_functions(request)
            .await
    });
    listed.unwrap().functions
}

fn names_and_states(client: &Client) -> Vec<(String, v1::FunctionState)> {
    let all = list(client).into_iter();
    all.map(|it| (it.name.clone(), it.state())).collect()
}

/// CNTLIDs of controllers of functions, with the functions' names.
fn controllers(client: &Client) -> Vec<(u32, String)> {
    let request = v1::ListControllersRequest::default();
    let listed = client.call(async |channel| {
        ControllerServiceClient::new(channel)
            .list_controllers(request)
            .await
    });
    let all = listed.unwrap().controllers.into_iter();
    all.map(|it| (it.cntlid, it.function)).collect()
}

fn reason(status: &Status) -> v1::Reason {
    admin_proto::detail_of(status.details()).unwrap().reason()
}

#[test]
fn functions_come_and_go_while_clients_have_them() {
    use v1::FunctionState::{Connected, Waiting};

    let folder = Folder::new("functions");
    let (admin, arguments) = with_admin(&folder);
    let target = start(&arguments, &["mem:1MiB"]);
    let client = Client::connect(&admin);
    let (one, two) = (folder.path("one"), folder.path("two"));
    let [one_text, two_text] = [&one, &two].map(|path| path.to_str().unwrap());
    let made = create(&client, "pf0vf1", NQN, one_text).unwrap();
    assert_eq!(
        (made.state(), made.origin(), made.protocol()),
        (Waiting, v1::Origin::Admin, v1::FunctionProtocol::VfioUser)
    );
    create(&client, "pf0", NQN, two_text).unwrap();
    let mut first = Monitor::connect(&one);
    let mut second = Monitor::connect(&two);
    let version = first.register(VS);
    assert_ne!(version, [0; 4]);
    assert_eq!(second.register(VS), version);
    let state = |name: &str, state| (name.to_owned(), state);
    assert_eq!(
        names_and_states(&client),
        [state("pf0", Connected), state("pf0vf1", Connected)]
    );
    let of_functions: Vec<_> = list(&client)
        .into_iter()
        .map(|it| (it.cntlid.unwrap(), it.name))
        .collect();
    let mut listed = controllers(&client);
    listed.sort_by(|(_, a), (_, b)| a.cmp(b));
    assert_eq!(listed, of_functions);
    assert_ne!(listed[0].0, listed[1].0);

    // Deleted under its client: that one is let go, the other is served as before.
    let deleted = delete(&client, "pf0vf1").unwrap();
    assert!(!deleted.closing, "{deleted:?}");
    assert!(first.is_let_go());
    assert!(!one.exists());
    assert_eq!(second.register(VS), version);
    assert_eq!(names_and_states(&client), [state("pf0", Connected)]);
    assert_eq!(controllers(&client).len(), 1);
    // A client that leaves makes room for the next.
    drop(second);
    let by = Instant::now() + Duration::from_secs(20);
    while names_and_states(&client) != [state("pf0", Waiting)] {
        assert!(Instant::now() < by, "{:?}", list(&client));
    }
    let mut again = Monitor::connect(&two);
    assert_eq!(again.register(VS), version);
    create(&client, "pf3sf2", NQN, one_text).unwrap();

    // After kill -9 those that were made are there, at the sockets that were left behind.
    drop(target);
    assert!(again.is_let_go());
    assert!(one.exists() && two.exists());
    let _target = start(&arguments, &["mem:1MiB"]);
    let client = Client::connect(&admin);
    assert_eq!(
        names_and_states(&client),
        [state("pf0", Waiting), state("pf3sf2", Waiting)]
    );
    assert_eq!(Monitor::connect(&one).register(VS), version);
}

#[test]
fn mistakes_are_refused_by_name_and_change_nothing() {
    let folder = Folder::new("function-mistakes");
    let (admin, arguments) = with_admin(&folder);
    let _target = start(&arguments, &["mem:1MiB"]);
    let client = Client::connect(&admin);
    let path = folder.path("function");
    let path = path.to_str().unwrap();
    create(&client, "pf0", NQN, path).unwrap();
    let other = folder.path("other");
    let other = other.to_str().unwrap();
    let long = format!("/{}", "x".repeat(107));
    let missing = folder.path("missing/function");
    for (name, nqn, socket, expected, field) in [
        ("pf0", NQN, other, v1::Reason::FunctionExists, ""),
        ("pf1", NQN, path, v1::Reason::AddressTaken, ""),
        ("pf1", "nqn.none", other, v1::Reason::NoSubsystem, ""),
        ("pf1", "none", other, v1::Reason::Field, "subsystem_nqn"),
        ("vf1", NQN, other, v1::Reason::Field, "name"),
        ("pf01", NQN, other, v1::Reason::Field, "name"),
        ("", NQN, other, v1::Reason::Field, "name"),
        ("pf1", NQN, "function", v1::Reason::Field, "socket"),
        ("pf1", NQN, "/", v1::Reason::Field, "socket"),
        ("pf1", NQN, &long, v1::Reason::Field, "socket"),
        ("pf1", NQN, "/tmp/a\nb", v1::Reason::Field, "socket"),
        // Where the admin service listens, and where there is no folder.
        (
            "pf1",
            NQN,
            admin.to_str().unwrap(),
            v1::Reason::AddressRefused,
            "",
        ),
        (
            "pf1",
            NQN,
            missing.to_str().unwrap(),
            v1::Reason::AddressRefused,
            "",
        ),
    ] {
        let refused = create(&client, name, nqn, socket).unwrap_err();
        let detail = admin_proto::detail_of(refused.details()).unwrap();
        let found = (detail.reason(), detail.field.as_str());
        assert_eq!(found, (expected, field), "{name} {nqn} {socket}: {refused}");
    }
    for (name, expected) in [("pf7", v1::Reason::NoFunction), ("7", v1::Reason::Field)] {
        assert_eq!(reason(&delete(&client, name).unwrap_err()), expected);
    }
    assert_eq!(list(&client).len(), 1);
    assert!(!Path::new(other).exists());
    assert_eq!(client.namespaces().len(), 1, "the admin service is there");
}
