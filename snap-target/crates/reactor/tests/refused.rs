//! Where io_uring is forbidden or locked memory is scarce. A program of its own, because it changes limits of its process.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::Write;
use std::thread;

use nix::libc;
use reactor::buf::{Pool, PoolConfig};
use reactor::{Errno, Fd, Payload, ReactorError, Ring, RingConfig, Wait};

/// Makes io_uring_setup answer `errno` for this thread, as a container's seccomp profile does.
fn forbid_io_uring(errno: Errno) {
    let load_number = libc::sock_filter {
        code: 0x20,
        jt: 0,
        jf: 0,
        k: 0,
    };
    let is_setup = libc::sock_filter {
        code: 0x15,
        jt: 0,
        jf: 1,
        k: u32::try_from(libc::SYS_io_uring_setup).unwrap(),
    };
    let answer = |k| libc::sock_filter {
        code: 0x06,
        jt: 0,
        jf: 0,
        k,
    };
    let mut filter = [
        load_number,
        is_setup,
        answer(libc::SECCOMP_RET_ERRNO | (errno as i32).cast_unsigned()),
        answer(libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: 4,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the filter outlives the calls, which copy it; both settings bind this thread only.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(
            libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const program
            ),
            0
        );
    }
}

#[test]
fn a_container_that_forbids_io_uring_is_told_what_to_do() {
    for (errno, advice) in [
        (Errno::EPERM, "kernel.io_uring_disabled"),
        (Errno::ENOSYS, "Linux 5.15"),
    ] {
        let error = thread::spawn(move || {
            forbid_io_uring(errno);
            Ring::new(&RingConfig::default()).err().unwrap()
        });
        let error = error.join().unwrap();
        assert!(
            matches!(error, ReactorError::Refused { source, .. } if source == errno),
            "{error:?}"
        );
        let text = error.to_string();
        assert!(
            text.contains("io_uring is refused")
                && text.contains(advice)
                && text.contains("seccomp"),
            "{text}"
        );
    }
}

/// Gives up the right to lock any amount of memory, for this thread.
fn drop_ipc_lock() {
    const VERSION_3: u32 = 0x2008_0522;
    const CAP_IPC_LOCK: u32 = 14;
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    let mut header = Header {
        version: VERSION_3,
        pid: 0,
    };
    // Effective, permitted, inheritable; twice.
    let mut sets = [0u32; 6];
    // SAFETY: capget and capset of version 3 take this header and two sets of three words; both bind this thread only.
    unsafe {
        assert_eq!(
            libc::syscall(libc::SYS_capget, &raw mut header, sets.as_mut_ptr()),
            0
        );
        sets[0] &= !(1 << CAP_IPC_LOCK);
        assert_eq!(
            libc::syscall(libc::SYS_capset, &raw mut header, sets.as_ptr()),
            0
        );
    }
}

#[test]
fn over_the_memlock_limit_buffers_work_unregistered() {
    thread::spawn(|| {
        let limit = libc::rlimit {
            rlim_cur: 256 << 10,
            rlim_max: 256 << 10,
        };
        // SAFETY: a live structure of the right type.
        let code = unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) };
        assert_eq!(code, 0);
        drop_ipc_lock();
        let ring = Ring::new(&RingConfig::default()).unwrap();
        let pool = Pool::new(&ring, &PoolConfig::default()).unwrap();
        assert!(!pool.registered());

        let path = std::env::temp_dir().join(format!("reactor-memlock-{}", std::process::id()));
        let mut file = std::fs::File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .unwrap();
        std::fs::remove_file(path).unwrap();
        file.write_all(b"content").unwrap();
        let owner = ring.register().unwrap();
        owner
            .read_at(&Fd::from(file), 0, pool.alloc(7).unwrap(), 1)
            .unwrap();
        let event = loop {
            match owner.next_event() {
                Some(event) => break event,
                None => drop(ring.turn(Wait::Block { until: None }).unwrap()),
            }
        };
        assert_eq!(event.result, Ok(7));
        assert!(matches!(event.payload, Payload::Buf(buf) if buf.to_vec() == b"content"));
    })
    .join()
    .unwrap();
}
