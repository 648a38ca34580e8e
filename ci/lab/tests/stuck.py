"""A disk that hangs: a file system of one file, served by this process (FUSE), whose operations are held back for as long as one likes."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import threading
from collections.abc import Iterable
from pathlib import Path

# Linux, include/uapi/linux/fuse.h: opcodes, and the protocol's version.
LOOKUP, FORGET, GETATTR, SETATTR, OPEN, READ, WRITE, STATFS = 1, 2, 3, 4, 14, 15, 16, 17
RELEASE, FSYNC, FLUSH, INIT, INTERRUPT, BATCH_FORGET = 18, 20, 25, 26, 36, 42
VERSION = (7, 31)
IN_HEADER_BYTES, OUT_HEADER_BYTES, WRITE_IN_BYTES = 40, 16, 40
REQUEST_BYTES_MAX = 2 << 20
TRANSFER_BYTES_MAX = 1 << 20
ROOT, DISK = 1, 2
NAME = b"disk"
FOPEN_DIRECT_IO = 1
FATTR_SIZE = 8
MNT_DETACH = 2

# What is asked of a file besides its contents.
METADATA = (LOOKUP, GETATTR, SETATTR, OPEN)

Request = tuple[int, int, int, bytes]


def can_be_had() -> bool:
    return os.geteuid() == 0 and os.access("/dev/fuse", os.R_OK | os.W_OK)


class StuckDisk:
    """`path` is a file of `size` bytes, mounted in `folder` until `end`. Needs root."""

    def __init__(self, folder: Path, size: int) -> None:
        folder.mkdir()
        self.path = folder / NAME.decode()
        self._folder, self._bytes = os.fsencode(folder), bytearray(size)
        self._lock, self._held, self._waiting = threading.Lock(), frozenset[int](), list[Request]()
        self._device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        self._libc = ctypes.CDLL(None, use_errno=True)
        options = f"fd={self._device},rootmode=40000,user_id=0,group_id=0".encode()
        if self._libc.mount(b"stuck", self._folder, b"fuse", 0, options) != 0:
            raise OSError(ctypes.get_errno(), "mount of a FUSE file system")
        threading.Thread(target=self._serve, daemon=True).start()

    def hold(self, opcodes: Iterable[int]) -> None:
        """From now on these are not answered."""
        with self._lock:
            self._held = frozenset(opcodes)

    def is_stuck(self) -> bool:
        """Somebody waits for an answer."""
        with self._lock:
            return bool(self._waiting)

    def release(self) -> None:
        """Everything is answered."""
        with self._lock:
            self._held, waiting, self._waiting = frozenset(), self._waiting, []
        for request in waiting:
            self._answer(*request)

    def end(self) -> None:
        self.release()
        self._libc.umount2(self._folder, MNT_DETACH)

    def _serve(self) -> None:
        while True:
            try:
                request = os.read(self._device, REQUEST_BYTES_MAX)
            except OSError as error:
                if error.errno in (errno.EINTR, errno.ENOENT, errno.EAGAIN):
                    continue
                return
            _, opcode, unique, node = struct.unpack_from("<IIQQ", request)
            whole = (opcode, unique, node, request[IN_HEADER_BYTES:])
            with self._lock:
                if opcode in self._held:
                    self._waiting.append(whole)
                    continue
            self._answer(*whole)

    def _reply(self, unique: int, data: bytes = b"", error: int = 0) -> None:
        header = struct.pack("<IiQ", OUT_HEADER_BYTES + len(data), -error, unique)
        try:
            os.write(self._device, header + data)
        except OSError as gone:
            # Whoever asked was killed, or the file system is unmounted.
            if gone.errno not in (errno.ENOENT, errno.EPERM, errno.ENODEV):
                raise

    def _attributes(self, node: int) -> bytes:
        size = len(self._bytes) if node == DISK else 0
        mode = 0o100600 if node == DISK else 0o40700
        times = (0, 0, 0, 0, 0, 0)
        return struct.pack("<QQQQQQIIIIIIIIII", node, size, size // 512, *times, mode, 1, 0, 0, 0, 4096, 0)

    def _answer(self, opcode: int, unique: int, node: int, body: bytes) -> None:
        if opcode == INIT:
            limits = struct.pack("<IIHHIIHHII7I", 0, 0, 64, 48, TRANSFER_BYTES_MAX, 1, 0, 0, 0, *(0,) * 8)
            self._reply(unique, struct.pack("<II", *VERSION) + limits[:56])
        elif opcode == LOOKUP:
            if body.rstrip(b"\0") != NAME:
                return self._reply(unique, error=errno.ENOENT)
            self._reply(unique, struct.pack("<QQQQII", DISK, 0, 0, 0, 0, 0) + self._attributes(DISK))
        elif opcode in (GETATTR, SETATTR):
            if opcode == SETATTR:
                self._set_size(body)
            self._reply(unique, struct.pack("<QII", 0, 0, 0) + self._attributes(node))
        elif opcode == OPEN:
            self._reply(unique, struct.pack("<QII", 1, FOPEN_DIRECT_IO, 0))
        elif opcode == READ:
            _, offset, size = struct.unpack_from("<QQI", body)
            self._reply(unique, bytes(self._bytes[offset : offset + size]))
        elif opcode == WRITE:
            _, offset, size = struct.unpack_from("<QQI", body)
            self._bytes[offset : offset + size] = body[WRITE_IN_BYTES : WRITE_IN_BYTES + size]
            self._reply(unique, struct.pack("<II", size, 0))
        elif opcode == STATFS:
            self._reply(unique, struct.pack("<QQQQQIIII24x", 1 << 20, 1 << 20, 1 << 20, 9, 9, 4096, 255, 4096, 0))
        elif opcode in (RELEASE, FSYNC, FLUSH):
            self._reply(unique)
        elif opcode not in (FORGET, BATCH_FORGET, INTERRUPT):
            self._reply(unique, error=errno.ENOSYS)

    def _set_size(self, body: bytes) -> None:
        valid, _, _, size = struct.unpack_from("<IIQQ", body)
        if valid & FATTR_SIZE:
            del self._bytes[size:]
            self._bytes.extend(bytes(size - len(self._bytes)))
