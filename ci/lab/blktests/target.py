"""The snap-target that blktests tests: one listener, nothing served at first, and the admin service over TCP for the guest's snapctl."""

from __future__ import annotations

import subprocess
from pathlib import Path

from lab.tests.daemon import Administered, free_port
from lab.tests.report import Unexpected

# The names in the certificates: the daemon's, and the administrator's in the guest.
ADMIN_NAME = "snap-target.example"
OPERATOR = "blktests"
# The subsystem that most tests ask for, by the name that the target control gives them.
NQN = "nqn.2014-08.org.nvmexpress:blktests-subsystem-1"


def make_certificates(folder: Path) -> None:
    """An authority, and what it vouches for: the daemon and one client. For as long as a test takes."""
    def openssl(*arguments: str) -> None:
        done = subprocess.run(["openssl", *arguments], cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Unexpected(f"openssl {arguments[0]} ended with {done.returncode}: {done.stderr.strip()[-500:]}")

    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl("req", "-x509", *new_key, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=lab authority")
    for name, subject, use in (("server", ADMIN_NAME, "serverAuth"), ("client", OPERATOR, "clientAuth")):
        openssl("req", *new_key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={subject}")
        (folder / f"{name}.ext").write_text(f"subjectAltName=DNS:{subject}\nextendedKeyUsage={use}\nbasicConstraints=CA:FALSE\n")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out", f"{name}.pem", "-days", "2",
                "-extfile", f"{name}.ext")


class ControlledTarget(Administered):
    """Two reactors, and no subsystem but what blktests makes; `port` is a listener that no test uses, since a target has one."""

    def __init__(self, bin_folder: Path, folder: Path) -> None:
        self._socket = folder / "admin.sock"
        super().__init__(folder / "target.log", [str(bin_folder / "snapctl"), "--socket", str(self._socket)])
        self.admin_port = free_port()
        # Where the target control has it listen, as long as there is something to serve.
        self.test_port = free_port()
        make_certificates(folder)
        config = folder / "target.toml"
        config.write_text(f"""
[target]
reactors = 2
state = "state"
log = "info"
[[listener]]
address = "127.0.0.1:{self.port}"
[admin]
socket = "admin.sock"
tcp = "127.0.0.1:{self.admin_port}"
tls-cert = "server.pem"
tls-key = "server.key"
tls-client-ca = "ca.pem"
tls-change = ["{OPERATOR}"]
""")
        self._command = [str(bin_folder / "snap-target"), "--config", str(config)]

    def start(self) -> None:
        self.run(self._command, self._socket)

    def identity_of(self, source: str, lba: int) -> str:
        """The UUID that a file has whenever it is attached: it follows from its path."""
        self.snapctl("subsystem", "create", NQN)
        self.snapctl("namespace", "attach", NQN, source, "--nsid", "1", "--lba", str(lba))
        uuid: str = self.asked("namespace", "list", NQN)["namespaces"][0]["uuid"]
        self.snapctl("subsystem", "delete", NQN, "--force")
        return uuid

    def delete_what_is_left(self) -> list[str]:
        """Deletes every subsystem, and names those there were: a test should leave none."""
        for listener in self.asked("listener", "list")["listeners"]:
            if listener["address"].endswith(f":{self.test_port}"):
                self.snapctl("listener", "remove", str(listener["port_id"]))
        left = [str(subsystem["nqn"]) for subsystem in self.asked("subsystem", "list").get("subsystems", [])]
        for nqn in left:
            self.snapctl("subsystem", "delete", nqn, "--force")
        return left
