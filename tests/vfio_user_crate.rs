//! The other implementation: the `vfio_user` crate's client on our server, and its server around our backends.

mod common;

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use common::client::{Client, Errno};
use common::guest::{Event, Ram};
use common::serve::Served;
use common::toy::{self, Toy};
use cx10::device::Function;
use cx10::device::clock::ManualClock;
use cx10::engine::Device;
use cx10::profile::Profile;
use cx10::trace::Trace;
use cx10::transport::layout::{Layout, irq, region};
use cx10::transport::message::SetIrqs;
use vfio_bindings::bindings::vfio::vfio_region_info;
use vfio_user::{IrqInfo, Server, ServerBackend, ServerRegion};
use vmm_sys_util::tempdir::TempDir;

#[test]
fn the_crate_s_client_works_on_our_server() {
    let served = Served::new(Toy::new());
    let mut client = vfio_user::Client::new(&served.path()).unwrap();
    assert_eq!(client.region(region::BAR0).unwrap().size, toy::BAR0_SIZE);
    assert_eq!(client.region(region::CONFIG).unwrap().flags, 3);
    let msix = client.get_irq_info(irq::MSIX).unwrap();
    assert_eq!((msix.index, msix.flags, msix.count), (2, 1, toy::VECTORS));

    client.region_write(region::BAR0, 0x40, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    let mut back = [0; 8];
    client.region_read(region::BAR0, 0x40, &mut back).unwrap();
    assert_eq!(back, [1, 2, 3, 4, 5, 6, 7, 8]);

    let ram = Ram::new(0x4000);
    client.dma_map(0, 0x10_0000, ram.size(), ram.fd().as_raw_fd()).unwrap();
    client.region_write(region::BAR0, toy::DMA, &0x10_0008u64.to_le_bytes()).unwrap();
    assert_eq!(ram.memory().read_u64(8), Ok(1));
    client.dma_unmap(0x10_0000, ram.size()).unwrap();

    let event = Event::new();
    let flags = SetIrqs::DATA_EVENTFD | SetIrqs::ACTION_TRIGGER;
    client.set_irqs(irq::MSIX, flags, 5, 1, &[event.fd().as_raw_fd()]).unwrap();
    client.region_write(region::BAR0, toy::DOORBELL, &5u32.to_le_bytes()).unwrap();
    assert_eq!(event.wait(Duration::from_secs(5)), Some(1));

    client.reset().unwrap();
    client.region_read(region::BAR0, 0x40, &mut back).unwrap();
    assert_eq!(back, [0; 8]);
    client.shutdown().unwrap();
    served.client().expect_silence();
}

/// A layout in the crate's own types.
fn in_crate_types(layout: &Layout) -> (Vec<IrqInfo>, Vec<ServerRegion>) {
    let irqs = (0..).zip(&layout.irqs).map(|(index, irq)| IrqInfo { index, flags: irq.flags.bits(), count: irq.count });
    let regions = (0..).zip(&layout.regions).map(|(index, region)| ServerRegion {
        region_info: vfio_region_info {
            argsz: 32,
            flags: region.flags.bits(),
            index,
            size: region.size,
            offset: region.mmap_offset,
            ..vfio_region_info::default()
        },
        sparse_areas: Vec::new(),
        mmap_fd: None,
    });
    (irqs.collect(), regions.collect())
}

/// Runs the crate's server for one client around a backend that is made in its thread.
fn on_the_crate_s_server<D: Device>(path: &Path, make: impl FnOnce() -> D + Send, drive: impl FnOnce(Client)) {
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut backend = make();
            let (irqs, regions) = in_crate_types(&backend.layout());
            let server = Server::new(path, true, irqs, regions).unwrap();
            let backend: &mut dyn ServerBackend = &mut backend;
            server.run(backend).unwrap();
        });
        let end = Instant::now() + Duration::from_secs(5);
        let stream = loop {
            match UnixStream::connect(path) {
                Ok(stream) => break stream,
                Err(error) => assert!(Instant::now() < end, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        drive(Client::over(stream));
    });
}

#[test]
fn the_crate_s_server_drives_a_backend_of_ours() {
    let dir = TempDir::new_with_prefix("/tmp/cx10-crate").unwrap();
    on_the_crate_s_server(&dir.as_path().join("s"), Toy::new, |mut client| {
        client.negotiate().unwrap();
        assert_eq!(client.irq_info(irq::MSIX).unwrap().count, toy::VECTORS);
        assert_eq!(client.region_info(region::BAR0).unwrap().size, toy::BAR0_SIZE);
        let ram = Ram::new(0x4000);
        client.map(0x1000, &ram).unwrap();
        client.write(region::BAR0, toy::DMA, &0x1010u64.to_le_bytes()).unwrap();
        assert_eq!(ram.memory().read_u64(0x10), Ok(1));
        client.connect_msix(1, &Event::new()).unwrap();
        client.unmap_all().unwrap();
        client.reset().unwrap();
    });
}

#[test]
fn the_crate_s_server_drives_the_function() {
    let dir = TempDir::new_with_prefix("/tmp/cx10-crate").unwrap();
    on_the_crate_s_server(&dir.as_path().join("s"), function, meet_the_function);
}

#[test]
fn our_server_drives_the_function() {
    let dir = TempDir::new_with_prefix("/tmp/cx10-crate").unwrap();
    let path = dir.as_path().join("s");
    let stop = cx10::engine::Stop::new().unwrap();
    std::thread::scope(|scope| {
        let (path, handle) = (&path, stop.clone());
        let _stop = StopAtEnd(stop);
        scope.spawn(move || cx10::engine::serve(path, &mut function(), &Default::default(), &handle).unwrap());
        while !path.exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
        meet_the_function(Client::connect(path));
        let mut client = Client::negotiated(path);
        let refused = client.read(region::BAR0, cx10::device::function::BAR0_SIZE, &mut [0; 4]);
        assert_eq!(refused, Err(Errno(libc::EINVAL)));
    });
}

/// Also when an assertion fails: the scope waits for its threads.
struct StopAtEnd(cx10::engine::Stop);

impl Drop for StopAtEnd {
    fn drop(&mut self) {
        self.0.stop();
    }
}

fn function() -> Function {
    let profile = Profile::default();
    Function::new(profile, Box::new(ManualClock::default()), Trace::off())
}

fn meet_the_function(mut client: Client) {
    client.negotiate().unwrap();
    assert_eq!(client.config_read(0, 4), 0x2101_15b3);
    assert_eq!(client.config_read(0x0a, 2), 0x0200, "an Ethernet controller");
    client.config_write(4, 2, 6);
    assert_eq!(client.config_read(4, 2) & 6, 6);
    let mut segment = [0; 8];
    client.read(region::BAR0, 0, &mut segment).unwrap();
    assert_eq!(u16::from_be_bytes([segment[4], segment[5]]), 5, "command interface revision 5");
    client.reset().unwrap();
    assert_eq!(client.config_read(4, 2) & 6, 0, "reset switches memory and bus mastering off");
}
