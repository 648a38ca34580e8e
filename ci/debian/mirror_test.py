import os
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from debian.mirror import NoMirror, find_mirror

ONE_LINE = """# deb http://commented.example/debian bookworm main
deb-src http://sources.example/debian bookworm main
deb [arch=amd64 signed-by=/k.gpg] http://other.example/tool stable main
deb http://first.example/debian bookworm-updates main
deb [trusted=yes] http://mirror.example/debian bookworm main contrib
"""
DEB822 = """Types: deb
URIs: http://off.example/debian
Suites: bookworm
Components: main
Enabled: no

Types: deb deb-src
# a comment
URIs: http://mirror822.example/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
"""


class MirrorTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.etc = Path(folder.name)
        (self.etc / "apt/sources.list.d").mkdir(parents=True)
        (self.etc / "os-release").write_text('ID=debian\nVERSION_CODENAME="bookworm"\n')
        without = {name: value for name, value in os.environ.items() if name != "XIO_DEBIAN_MIRROR"}
        patch = mock.patch.dict(os.environ, without, clear=True)
        patch.start()
        self.addCleanup(patch.stop)

    def test_one_line_sources(self) -> None:
        (self.etc / "apt/sources.list").write_text(ONE_LINE)
        self.assertEqual(find_mirror(self.etc), "http://mirror.example/debian")

    def test_deb822_sources(self) -> None:
        (self.etc / "apt/sources.list.d/debian.sources").write_text(DEB822)
        self.assertEqual(find_mirror(self.etc), "http://mirror822.example/debian")

    def test_the_environment_wins(self) -> None:
        (self.etc / "apt/sources.list").write_text(ONE_LINE)
        os.environ["XIO_DEBIAN_MIRROR"] = "http://chosen.example/debian"
        self.assertEqual(find_mirror(self.etc), "http://chosen.example/debian")

    def test_no_archive_of_this_release(self) -> None:
        (self.etc / "apt/sources.list").write_text("deb http://other.example/tool stable main\n")
        with self.assertRaisesRegex(NoMirror, "set XIO_DEBIAN_MIRROR"):
            find_mirror(self.etc)

    def test_another_distribution(self) -> None:
        (self.etc / "apt/sources.list").write_text(ONE_LINE)
        (self.etc / "os-release").write_text("ID=ubuntu\nVERSION_CODENAME=bookworm\n")
        with self.assertRaises(NoMirror):
            find_mirror(self.etc)


if __name__ == "__main__":
    unittest.main()
