use super::*;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

fn mapped(size: u64, sealed: bool, protection: Protection) -> (OwnedFd, Mapping) {
    let fd = memfd("cx10-test", size, sealed).unwrap();
    let map = Mapping::new(fd.as_fd(), 0, size, protection).unwrap();
    (fd, map)
}

#[test]
fn copies_arrive_at_every_alignment_and_length() {
    let (_fd, map) = mapped(0x2000, true, Protection::ReadWrite);
    for offset in 0..17u64 {
        for len in (0..70usize).chain([255, 256, 257, 1024]) {
            let src: Vec<u8> = (0..len).map(|i| (i as u8) ^ (offset as u8).wrapping_mul(31)).collect();
            map.write(offset, &src).unwrap();
            let mut dst = vec![0xaa; len];
            map.read(offset, &mut dst).unwrap();
            assert_eq!(dst, src, "offset {offset} len {len}");
        }
    }
}

#[test]
fn two_mappings_of_one_file_see_the_same_bytes() {
    let (fd, a) = mapped(0x3000, true, Protection::ReadWrite);
    let b = Mapping::new(fd.as_fd(), 0x1000, 0x1000, Protection::ReadOnly).unwrap();
    a.write_u64(0x1ff8, 0x1122_3344_5566_7788).unwrap();
    assert_eq!(b.read_u64(0xff8), Ok(0x1122_3344_5566_7788));
    assert_eq!(b.write_u8(0, 1), Err(AccessError::ReadOnly));
    assert_eq!(b.write(0, &[1, 2, 3]), Err(AccessError::ReadOnly));
}

#[test]
fn an_offset_inside_a_page_is_mapped_where_it_was_asked_for() {
    let (fd, a) = mapped(0x3000, true, Protection::ReadWrite);
    let b = Mapping::new(fd.as_fd(), 0x1010, 0x20, Protection::ReadWrite).unwrap();
    a.write_u32(0x1010, 0xfeed).unwrap();
    assert_eq!(b.read_u32(0), Ok(0xfeed));
    assert_eq!(b.len(), 0x20);
    assert_eq!(b.read_u8(0x20), Err(AccessError::OutOfBounds));
}

#[test]
fn accesses_outside_the_mapping_are_refused_without_wrapping() {
    let (_fd, map) = mapped(0x1000, true, Protection::ReadWrite);
    let mut byte = [0u8; 2];
    assert_eq!(map.read(0x1000, &mut byte[..1]), Err(AccessError::OutOfBounds));
    assert_eq!(map.read(0xfff, &mut byte), Err(AccessError::OutOfBounds));
    assert_eq!(map.read(u64::MAX, &mut byte), Err(AccessError::OutOfBounds));
    assert_eq!(map.write(u64::MAX - 1, &byte), Err(AccessError::OutOfBounds));
    assert_eq!(map.read_u64(0xff9), Err(AccessError::OutOfBounds));
    assert_eq!(map.read(0x1000, &mut []), Ok(()));
}

#[test]
fn word_accesses_must_be_aligned() {
    let (_fd, map) = mapped(0x1000, true, Protection::ReadWrite);
    assert_eq!(map.read_u32(2), Err(AccessError::Misaligned));
    assert_eq!(map.write_u64(4, 0), Err(AccessError::Misaligned));
    assert_eq!(map.compare_exchange_u64(12, 0, 1), Err(AccessError::Misaligned));
    assert_eq!(map.compare_exchange_u64(8, 0, 1), Ok(0));
    assert_eq!(map.compare_exchange_u64(8, 0, 2), Ok(1));
    assert_eq!(map.read_u64(8), Ok(1));
}

#[test]
fn a_map_beyond_the_end_of_the_file_is_refused() {
    let fd = memfd("cx10-test", 0x2000, false).unwrap();
    let map = |offset, len| Mapping::new(fd.as_fd(), offset, len, Protection::ReadWrite).map_err(|e| e.raw_os_error());
    assert!(map(0, 0x2000).is_ok());
    assert_eq!(map(0, 0x2001).unwrap_err(), Some(libc::EINVAL));
    assert_eq!(map(0x2000, 1).unwrap_err(), Some(libc::EINVAL));
    assert_eq!(map(0, 0).unwrap_err(), Some(libc::EINVAL));
    assert_eq!(map(u64::MAX, 2).unwrap_err(), Some(libc::EOVERFLOW));
}

#[test]
fn only_regular_files_are_mapped() {
    let (a, _b) = UnixStream::pair().unwrap();
    let error = Mapping::new(a.as_fd(), 0, 1, Protection::ReadOnly).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    let dir = std::fs::File::open("/").unwrap();
    let error = Mapping::new(dir.as_fd(), 0, 1, Protection::ReadOnly).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
}

#[test]
fn a_truncated_file_ends_the_mapping_and_not_the_process() {
    let (fd, map) = mapped(0x4000, false, Protection::ReadWrite);
    assert!(map.can_shrink());
    map.write(0x2000, &[7; 64]).unwrap();
    std::fs::File::from(fd).set_len(0x1000).unwrap();
    let mut buf = [0u8; 64];
    assert_eq!(map.read(0, &mut buf), Ok(()), "the part that is left can still be read");
    assert_eq!(map.read(0x2000, &mut buf), Err(AccessError::Torn));
    assert!(map.is_torn());
    assert_eq!(map.read(0, &mut buf), Err(AccessError::Torn), "a torn mapping stays refused");
    assert_eq!(map.write(0x3000, &buf), Err(AccessError::Torn));
    assert_eq!(map.store_release_u8(0, 1), Err(AccessError::Torn));
}

#[test]
fn a_bulk_copy_into_a_truncated_file_is_refused() {
    let (fd, map) = mapped(0x4000, false, Protection::ReadWrite);
    std::fs::File::from(fd).set_len(0x1000).unwrap();
    assert_eq!(map.write(0, &vec![1; 0x4000]), Err(AccessError::Torn));
}

#[test]
fn a_sealed_file_cannot_be_truncated() {
    let (fd, map) = mapped(0x4000, true, Protection::ReadWrite);
    assert!(!map.can_shrink());
    let error = std::fs::File::from(fd).set_len(0x1000).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EPERM));
    assert_eq!(map.read_u8(0x3fff), Ok(0));
}

#[test]
fn memory_to_memory_copies_handle_overlap() {
    for sealed in [true, false] {
        let (_fd, map) = mapped(0x8000, sealed, Protection::ReadWrite);
        let bytes: Vec<u8> = (0..0x5000u32).map(|i| (i % 251) as u8).collect();
        let mut back = vec![0; bytes.len()];
        map.write(0, &bytes).unwrap();
        map.copy_to(0, &map, 0x1234, bytes.len()).unwrap();
        map.read(0x1234, &mut back).unwrap();
        assert_eq!(back, bytes, "upwards, sealed {sealed}");
        map.copy_to(0x1234, &map, 0x11, bytes.len()).unwrap();
        map.read(0x11, &mut back).unwrap();
        assert_eq!(back, bytes, "downwards, sealed {sealed}");
        assert_eq!(map.copy_to(0, &map, 0x7fff, 2), Err(MoveError::Target(AccessError::OutOfBounds)));
    }
}

#[test]
fn descriptors_travel_with_their_bytes_and_are_close_on_exec() {
    let (a, b) = UnixStream::pair().unwrap();
    let fds = [memfd("one", 4096, false).unwrap(), memfd("two", 8192, false).unwrap()];
    assert_eq!(send(a.as_fd(), b"hello", &[fds[0].as_fd(), fds[1].as_fd()]).unwrap(), 5);
    let mut buf = [0; 64];
    let mut got = Vec::new();
    let received = receive(b.as_fd(), &mut buf, &mut got).unwrap();
    assert_eq!(received, Received { bytes: 5, fds: 2, fds_lost: false });
    assert_eq!(std::fs::File::from(got.pop().unwrap()).metadata().unwrap().len(), 8192);
    // SAFETY: no pointers involved.
    let flags = unsafe { libc::fcntl(got[0].as_raw_fd(), libc::F_GETFD) };
    assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
    assert_eq!(receive(b.as_fd(), &mut buf, &mut got).unwrap_err().kind(), io::ErrorKind::WouldBlock);
}

#[test]
fn a_receive_ends_with_the_packet_that_carried_descriptors() {
    let (a, b) = UnixStream::pair().unwrap();
    let fd = memfd("one", 4096, false).unwrap();
    send(a.as_fd(), b"plain", &[]).unwrap();
    send(a.as_fd(), b"with", &[fd.as_fd()]).unwrap();
    send(a.as_fd(), b"after", &[]).unwrap();
    let mut buf = [0; 64];
    let mut got = Vec::new();
    assert_eq!(receive(b.as_fd(), &mut buf, &mut got).unwrap().bytes, 9);
    assert_eq!(got.len(), 1);
    assert_eq!(receive(b.as_fd(), &mut buf, &mut got).unwrap().bytes, 5);
    assert_eq!(got.len(), 1);
}

#[test]
fn too_many_descriptors_are_reported_and_none_is_kept() {
    let (a, b) = UnixStream::pair().unwrap();
    let fd = memfd("one", 4096, false).unwrap();
    send(a.as_fd(), b"x", &[fd.as_fd(); 17]).unwrap();
    let mut got = Vec::new();
    let received = receive(b.as_fd(), &mut [0; 8], &mut got).unwrap();
    assert_eq!(received, Received { bytes: 1, fds: 0, fds_lost: true });
    assert!(got.is_empty());
}

#[test]
fn a_listener_has_the_asked_permissions_from_the_start() {
    use std::os::unix::fs::PermissionsExt;
    let dir = vmm_sys_util::tempdir::TempDir::new_with_prefix("/tmp/cx10-sys").unwrap();
    let path = dir.as_path().join("sock");
    let _listener = bind_listener(&path, 0o600).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

const BUS_CHILD: &str = "CX10_TEST_SIGBUS";

#[test]
fn a_fault_outside_guest_memory_still_kills() {
    use std::os::unix::process::ExitStatusExt;
    if std::env::var_os(BUS_CHILD).is_some() {
        let (fd, map) = mapped(0x2000, false, Protection::ReadWrite);
        File::from(fd).set_len(0).unwrap();
        // SAFETY: the address is mapped; that its page is gone, and the access not announced, is the point.
        let byte = unsafe { ptr::read_volatile(map.base.as_ptr()) };
        panic!("read {byte}");
    }
    let exe = std::env::current_exe().unwrap();
    let test = "sys::tests::a_fault_outside_guest_memory_still_kills";
    let output = Command::new(exe).args(["--exact", test]).env(BUS_CHILD, "1").output().unwrap();
    assert_eq!(output.status.signal(), Some(libc::SIGBUS), "{output:?}");
}

#[test]
fn threads_started_without_signals_take_none_and_the_caller_still_does() {
    let blocked = || {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap()
    };
    let interrupt = 1u64 << (libc::SIGINT - 1);
    let before = blocked();
    let inside = without_signals(|| std::thread::spawn(blocked).join().unwrap());
    assert_ne!(inside & interrupt, 0, "{inside:#x}");
    assert_eq!(blocked(), before);
}
