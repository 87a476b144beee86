//! The way up and down of a real driver, from outside: `cx10 serve`, a socket, registers and memory. No QEMU.
//!
//! The order of commands is that of Linux 7.3: `main.c:mlx5_function_setup`, `mlx5_load`, `en_main.c`, mlx5_ib's stages.

mod common;

use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use common::driver::{Driver, Eq, input, naming, number, pas};
use cx10::prm::cq::CreateCqIn;
use cx10::prm::mkey::CreateMkeyIn;
use cx10::prm::qp::{CreateQpIn, Rst2initQpIn};
use cx10::prm::queue::{CreateRqIn, CreateSqIn};
use cx10::prm::srq::{CreateRmpIn, CreateXrcSrqIn};
use cx10::prm::tir::{CreateRqtIn, CreateTirIn, CreateTisIn};
use cx10::prm::vport::SetRoceAddressIn;
use cx10::trace::RunSummary;
use vmm_sys_util::tempdir::TempDir;

const BAD_SYS_STATE: u8 = 0x4;
const BAD_RES_STATE: u8 = 0x9;

/// A running `cx10 serve`.
struct Device {
    child: Child,
    dir: TempDir,
}

impl Device {
    fn start() -> Device {
        let dir = TempDir::new_with_prefix("/tmp/cx10-boot").expect("temporary directory");
        let path = |name: &str| dir.as_path().join(name);
        let child = Command::new(env!("CARGO_BIN_EXE_cx10"))
            .args(["serve", "--socket"])
            .arg(path("socket"))
            .arg("--report")
            .arg(path("report"))
            .arg("--trace")
            .arg(path("trace"))
            .spawn()
            .expect("cx10 starts");
        let end = Instant::now() + Duration::from_secs(20);
        while !path("socket").exists() {
            assert!(Instant::now() < end, "the device never listens");
            std::thread::sleep(Duration::from_millis(1));
        }
        Device { child, dir }
    }

    fn socket(&self) -> PathBuf {
        self.dir.as_path().join("socket")
    }

    fn driver(&self) -> Driver {
        Driver::attach(&self.socket())
    }

    /// How often the trace says that a VMM came or went.
    fn vmm_events(&self, change: &str) -> usize {
        let trace = std::fs::read_to_string(self.dir.as_path().join("trace")).expect("a trace");
        let lines = trace.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        lines.filter(|line| line["ev"] == "vmm" && line["change"] == change).count()
    }

    /// Ends the device as an operator does, and reads what it says about the run.
    fn stop(&mut self) -> RunSummary {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("kill runs").success());
        let status = self.child.wait().expect("it ends");
        assert!(status.code().is_some(), "the device was killed: {status}");
        RunSummary::read_json(&self.dir.as_path().join("report")).expect("a report")
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What probing and opening created, in the order of creation: the command that destroys it, and its number.
#[derive(Default)]
struct Created(Vec<(u16, u32)>);

impl Created {
    fn add(&mut self, destroy: u16, number: u32) -> u32 {
        self.0.push((destroy, number));
        number
    }

    fn destroy(&mut self, driver: &mut Driver) {
        while let Some((opcode, number)) = self.0.pop() {
            driver.ok(&naming(opcode, number), 16);
        }
    }
}

/// Objects that later ones name.
struct Shared {
    pd: u32,
    td: u32,
    comp: Eq,
    /// Completion queues of the receive queue and of the send queue.
    cqns: [u32; 2],
}

fn create_cq(driver: &mut Driver, created: &mut Created, eqn: u32, log_size: u32) -> (u32, u64) {
    let bytes = 64u64 << log_size;
    let (at, record) = (driver.memory(bytes, 0xff), driver.memory(8, 0));
    let mut create = CreateCqIn::with_tail(8 * bytes.div_ceil(4096) as usize);
    create.set_opcode(0x400);
    let mut context = create.cq_context_mut();
    context.set_log_cq_size(log_size);
    context.set_uar_page(driver.uar());
    context.set_c_eqn_or_apu_element(eqn);
    context.set_dbr_addr(record);
    pas(create.pas_mut(), at);
    (created.add(0x401, number(&driver.ok(create.as_bytes(), 16))), at)
}

fn create_dma_mkey(driver: &mut Driver, created: &mut Created, pd: u32) -> u32 {
    let mut create = CreateMkeyIn::zeroed();
    create.set_opcode(0x200);
    let mut context = create.memory_key_mkey_entry_mut();
    context.set_lr(1);
    context.set_lw(1);
    context.set_length64(1);
    context.set_pd(pd);
    context.set_qpn(0xff_ffff);
    context.set_relaxed_ordering_write(1);
    context.set_relaxed_ordering_read(1);
    created.add(0x202, number(&driver.ok(create.as_bytes(), 16)))
}

/// mlx5e: domains, a key, transport interfaces, queues, receive tables.
fn bring_up_netdev(driver: &mut Driver, created: &mut Created) -> Shared {
    let vport = driver.ok(&input(0x754, 0, 16), 0x110);
    assert_ne!(vport[0x10 + 0xf6..0x10 + 0xfc], [0; 6], "a MAC address");
    let pd = created.add(0x801, number(&driver.ok(&input(0x800, 0, 16), 16)));
    let td = created.add(0x817, number(&driver.ok(&input(0x816, 0, 16), 16)));
    create_dma_mkey(driver, created, pd);
    created.add(0x803, number(&driver.ok(&input(0x802, 0, 16), 16)));
    let mut tises = Vec::new();
    for prio in 0..8 {
        let mut create = CreateTisIn::zeroed();
        create.set_opcode(0x912);
        create.ctx_mut().set_prio(prio << 1);
        create.ctx_mut().set_transport_domain(td);
        tises.push(created.add(0x914, number(&driver.ok(create.as_bytes(), 16))));
    }
    let counters = u32::from(driver.ok(&input(0x771, 0, 16), 16)[11]);
    created.add(0x772, counters);
    let comp = driver.create_eq(0xffff, 1, 0, 6);
    created.add(0x302, comp.eqn);

    // A receive queue.
    let (rq_cqn, _) = create_cq(driver, created, comp.eqn, 6);
    let (at, record) = (driver.memory(4096, 0), driver.memory(8, 0));
    let mut create = CreateRqIn::with_tail(8);
    create.set_opcode(0x908);
    let mut context = create.ctx_mut();
    context.set_vsd(1);
    context.set_flush_in_error_en(1);
    context.set_cqn(rq_cqn);
    context.set_counter_set_id(counters);
    let mut wq = context.wq_mut();
    wq.set_wq_type(1);
    wq.set_pd(pd);
    wq.set_log_wq_stride(6);
    wq.set_log_wq_sz(6);
    wq.set_dbr_addr(record);
    pas(wq.pas_mut(), at);
    let rqn = created.add(0x90a, number(&driver.ok(create.as_bytes(), 16)));
    let mut modify = input(0x909, 0, 0x110);
    modify[8..12].copy_from_slice(&rqn.to_be_bytes());
    modify[0x21] = 0x10; // ready
    driver.ok(&modify, 16);

    // A table of it, and what packets are spread by.
    let mut create = CreateRqtIn::with_tail(4);
    create.set_opcode(0x916);
    create.rqt_context_mut().set_rqt_max_size(1);
    create.rqt_context_mut().set_rqt_actual_size(1);
    let len = create.as_bytes().len();
    create.as_bytes_mut()[len - 4..].copy_from_slice(&rqn.to_be_bytes());
    let rqtn = created.add(0x918, number(&driver.ok(create.as_bytes(), 16)));
    let mut create = CreateTirIn::zeroed();
    create.set_opcode(0x900);
    let mut context = create.ctx_mut();
    context.set_disp_type(1);
    context.set_indirect_table(rqtn);
    context.set_rx_hash_fn(2);
    context.set_transport_domain(td);
    created.add(0x902, number(&driver.ok(create.as_bytes(), 16)));

    // A send queue.
    let (sq_cqn, _) = create_cq(driver, created, comp.eqn, 6);
    let (at, record) = (driver.memory(4096, 0), driver.memory(8, 0));
    let mut create = CreateSqIn::with_tail(8);
    create.set_opcode(0x904);
    let uar = driver.uar();
    let mut context = create.ctx_mut();
    context.set_flush_in_error_en(1);
    context.set_min_wqe_inline_mode(0);
    context.set_cqn(sq_cqn);
    context.set_tis_lst_sz(1);
    context.set_tis_num_0(tises[0]);
    let mut wq = context.wq_mut();
    wq.set_wq_type(1);
    wq.set_pd(pd);
    wq.set_uar_page(uar);
    wq.set_log_wq_stride(6);
    wq.set_log_wq_sz(6);
    wq.set_dbr_addr(record);
    pas(wq.pas_mut(), at);
    let sqn = created.add(0x906, number(&driver.ok(create.as_bytes(), 16)));
    let mut modify = input(0x905, 0, 0x110);
    modify[8..12].copy_from_slice(&sqn.to_be_bytes());
    modify[0x21] = 0x10;
    driver.ok(&modify, 16);
    assert_eq!(driver.ok(&input(0x750, 0, 16), 16)[15] & 0xf, 1, "the vport is up");
    Shared { pd, td, comp, cqns: [rq_cqn, sq_cqn] }
}

/// mlx5_ib: domains, the internal shared receive queues, addresses, QP1 up to RTS.
fn bring_up_rdma(driver: &mut Driver, created: &mut Created, shared: &Shared) {
    let special = driver.ok(&input(0x203, 0, 16), 0x1c);
    assert_ne!(special[0x10..0x14], [0; 4], "a null key");
    let mut description = input(0x805, 1, 0x50);
    description[8..12].copy_from_slice(&0x6001u32.to_be_bytes());
    assert_ne!(driver.ok(&description, 0x50)[0x10], 0, "a node description");
    let mut roce = input(0x755, 0, 0x200);
    roce[15] = 2; // roce_en is selected
    roce[0x103] = 1;
    driver.ok(&roce, 16);
    let xrcd = created.add(0x80f, number(&driver.ok(&input(0x80e, 0, 16), 16)));
    created.add(0x80f, number(&driver.ok(&input(0x80e, 0, 16), 16)));
    for _ in 0..2 {
        created.add(0x803, number(&driver.ok(&input(0x802, 0, 16), 16)));
    }
    for (index, last) in [(0, 1u8), (1, 2)] {
        let mut set = SetRoceAddressIn::zeroed();
        set.set_opcode(0x761);
        set.set_roce_address_index(index);
        let mut address = set.roce_address_mut();
        let mut gid = [0; 16];
        gid[..2].copy_from_slice(&[0xfe, 0x80]);
        gid[15] = last;
        address.set_source_l3_address(&gid);
        address.set_roce_version(2);
        address.set_roce_l3_type(1);
        address.set_source_mac_31_0(0x0a00_0001);
        driver.ok(set.as_bytes(), 16);
    }
    let pd = created.add(0x801, number(&driver.ok(&input(0x800, 0, 16), 16)));
    create_dma_mkey(driver, created, pd);

    let (cqn, _) = create_cq(driver, created, shared.comp.eqn, 1);
    let (at, record) = (driver.memory(64, 0), driver.memory(8, 0));
    let mut create = CreateXrcSrqIn::with_tail(8);
    create.set_opcode(0x705);
    let mut context = create.xrc_srq_context_entry_mut();
    context.set_log_xrc_srq_size(1);
    context.set_log_rq_stride(1);
    context.set_pd(pd);
    context.set_xrcd(xrcd);
    context.set_cqn(cqn);
    context.set_user_index(0xff_ffff);
    context.set_db_record_addr_l((record >> 2) as u32);
    pas(create.pas_mut(), at);
    created.add(0x706, number(&driver.ok(create.as_bytes(), 16)));
    let mut create = CreateRmpIn::with_tail(8);
    create.set_opcode(0x90c);
    let mut context = create.ctx_mut();
    context.set_state(1);
    let mut wq = context.wq_mut();
    wq.set_pd(pd);
    wq.set_log_wq_sz(1);
    wq.set_log_wq_stride(5);
    wq.set_dbr_addr(record);
    pas(wq.pas_mut(), at);
    let rmpn = created.add(0x90e, number(&driver.ok(create.as_bytes(), 16)));

    let (cqn, _) = create_cq(driver, created, shared.comp.eqn, 8);
    let (at, record) = (driver.memory(0x6000, 0), driver.memory(8, 0));
    let mut create = CreateQpIn::with_tail(8 * 6);
    create.set_opcode(0x500);
    let uar = driver.uar();
    let mut context = create.qpc_mut();
    context.set_st(8); // QP1
    context.set_pm_state(3);
    context.set_pd(pd);
    context.set_fre(1);
    context.set_rlky(1);
    context.set_log_rq_size(9);
    context.set_log_rq_stride(0);
    context.set_log_sq_size(8);
    context.set_uar_page(uar);
    context.set_user_index(0xff_ffff);
    context.set_cqn_snd(cqn);
    context.set_cqn_rcv(cqn);
    context.set_srqn_rmpn_xrqn(rmpn);
    context.set_xrcd(xrcd);
    context.set_dbr_addr(record);
    pas(create.pas_mut(), at);
    let qpn = created.add(0x501, number(&driver.ok(create.as_bytes(), 16)));
    for (opcode, state) in [(0x502, 1), (0x503, 2), (0x504, 3)] {
        let mut modify = Rst2initQpIn::zeroed();
        modify.set_opcode(opcode);
        modify.set_qpn(qpn);
        let mut context = modify.qpc_mut();
        context.set_st(8);
        context.set_pm_state(3);
        context.set_mtu(1);
        context.set_log_msg_max(8);
        context.set_q_key(0x8001_0000);
        context.set_log_ack_req_freq(8);
        context.primary_address_path_mut().set_vhca_port_num(1);
        driver.ok(modify.as_bytes(), 16);
        let out = driver.ok(&naming(0x50b, qpn), 0x1d0);
        assert_eq!(out[0x18] >> 4, state, "state after {opcode:#x}");
    }
}

/// A whole life: probe, both drivers, and all the way back.
fn live(driver: &mut Driver) {
    driver.init_hca();
    let own = driver.load();
    let mut created = Created::default();
    let shared = bring_up_netdev(driver, &mut created);
    bring_up_rdma(driver, &mut created, &shared);
    // What is in use stays.
    let [rq_cqn, sq_cqn] = shared.cqns;
    let in_use = [
        (0x801, shared.pd),
        (0x817, shared.td),
        (0x302, shared.comp.eqn),
        (0x803, driver.uar()),
        (0x401, rq_cqn),
        (0x401, sq_cqn),
    ];
    for (opcode, id) in in_use {
        assert_eq!(driver.exec(&naming(opcode, id), 16).status(), BAD_RES_STATE, "{opcode:#x} {id:#x}");
    }
    let mut disable = input(0x755, 0, 0x200);
    disable[15] = 2;
    driver.ok(&disable, 16);
    created.destroy(driver);
    driver.unload(own);
    driver.tear_down();
    assert_eq!(driver.lent(), 0, "every page is returned");
    assert_eq!(driver.pages.0, driver.pages.1);
}

#[test]
fn a_driver_comes_up_and_goes_and_leaves_nothing() {
    let mut device = Device::start();
    let mut driver = device.driver();
    for _ in 0..2 {
        live(&mut driver);
        driver.enable();
    }
    let (given, returned) = driver.pages;
    driver.client.disconnect();
    let summary = device.stop();
    assert_eq!((summary.pages.given, summary.pages.reclaimed, summary.pages.held), (given, returned, 0));
    assert!(given > 0 && summary.pages.dropped_by_reset == 0);
    assert!(summary.objects_alive.is_empty(), "{:?}", summary.objects_alive);
    let failures: Vec<_> = summary.commands.failures.iter().map(|f| (f.opcode.as_str(), f.count)).collect();
    // Each life tries to destroy what is in use.
    let expected =
        [("DEALLOC_PD", 2), ("DEALLOC_TRANSPORT_DOMAIN", 2), ("DESTROY_EQ", 2), ("DEALLOC_UAR", 2), ("DESTROY_CQ", 4)];
    let unexpected: Vec<_> = failures.iter().filter(|f| !expected.contains(f)).collect();
    // QUERY_HCA_CAP of a type that the profile lacks is the driver's question, not its mistake.
    assert!(unexpected.iter().all(|f| f.0 == "QUERY_HCA_CAP"), "{unexpected:?}");
    assert!(summary.unimplemented.opcodes.is_empty(), "{:?}", summary.unimplemented);
}

#[test]
fn commands_have_their_time() {
    let mut device = Device::start();
    let mut driver = device.driver();
    let needs_running = [input(0x802, 0, 16), input(0x800, 0, 16), input(0x400, 0, 0x118), input(0x103, 0, 16)];
    let needs_enabled = [input(0x102, 0, 0x20), input(0x100, 1, 16), input(0x107, 1, 16), input(0x105, 0, 16)];
    for early in needs_running.iter().chain(&needs_enabled) {
        assert_eq!(driver.exec(early, 16).status(), BAD_SYS_STATE, "{:?} before ENABLE_HCA", &early[..2]);
    }
    driver.init_hca();
    assert_eq!(driver.exec(&input(0x104, 0, 16), 16).status(), BAD_SYS_STATE, "enabled twice");
    assert_eq!(driver.exec(&input(0x102, 0, 0x20), 16).status(), BAD_SYS_STATE, "initialized twice");
    assert_eq!(driver.exec(&input(0x105, 0, 16), 16).status(), BAD_SYS_STATE, "disabled while running");
    // A teardown in the same doorbell as commands behind it: each is answered in its turn.
    driver.post(3, &input(0x800, 0, 16), 16);
    driver.post(4, &input(0x103, 0, 16), 16);
    driver.post(5, &input(0x800, 0, 16), 16);
    driver.ring(0b11_1000);
    assert_eq!([3, 4, 5].map(|slot| driver.wait(slot, 16).status()), [0, 0, BAD_SYS_STATE]);
    for late in &needs_running {
        assert_eq!(driver.exec(late, 16).status(), BAD_SYS_STATE, "{:?} after TEARDOWN_HCA", &late[..2]);
    }
    driver.reclaim_pages();
    driver.ok(&input(0x105, 0, 16), 16);
    for late in needs_running.iter().chain(&needs_enabled) {
        assert_eq!(driver.exec(late, 16).status(), BAD_SYS_STATE, "{:?} after DISABLE_HCA", &late[..2]);
    }
    driver.client.disconnect();
    assert!(device.stop().objects_alive.is_empty());
}

/// Function-level reset by the PCI Express capability, as the kernel does through sysfs.
fn function_level_reset(driver: &mut Driver) {
    const PCI_EXPRESS: u32 = 0x10;
    let mut at = driver.client.config_read(0x34, 1);
    while at != 0 && driver.client.config_read(u64::from(at), 1) != PCI_EXPRESS {
        at = driver.client.config_read(u64::from(at) + 1, 1);
    }
    assert_ne!(at, 0, "a PCI Express capability");
    let control = driver.client.config_read(u64::from(at) + 8, 2);
    driver.client.config_write(u64::from(at) + 8, 2, control | 1 << 15);
}

#[test]
fn a_reset_ends_everything_and_a_new_life_begins() {
    let mut device = Device::start();
    let mut driver = device.driver();
    let resets: [fn(&mut Driver); 3] = [
        |driver| driver.client.reset().expect("reset"),
        function_level_reset,
        |driver| {
            driver.client.reset().expect("reset");
            driver.client.reset().expect("a second reset");
        },
    ];
    for reset in resets {
        driver.init_hca();
        driver.load();
        let mut created = Created::default();
        bring_up_netdev(&mut driver, &mut created);
        // Commands are under way when the reset comes; whatever they still do, they do before it returns.
        for slot in 0..8 {
            driver.post(slot, &input(0x800, 0, 16), 16);
        }
        driver.ring(0xff);
        reset(&mut driver);
        let answered: Vec<bool> = (0..8).map(|slot| driver.answered(slot)).collect();
        std::thread::sleep(Duration::from_millis(20));
        let later: Vec<bool> = (0..8).map(|slot| driver.answered(slot)).collect();
        assert_eq!(answered, later, "nothing of the old life is written after the reset");
        // The queue is forgotten: a doorbell does nothing.
        driver.client.config_write(4, 2, 6);
        driver.post(9, &input(0x104, 0, 16), 16);
        driver.ring(1 << 9);
        std::thread::sleep(Duration::from_millis(20));
        assert!(!driver.answered(9), "a command queue without an address");
        // This is how a driver that lived through the reset learns of it.
        const DISABLED: u32 = 1;
        assert_eq!(driver.register(0x14) >> 8 & 7, DISABLED);
        driver.forget();
        driver.enable();
        assert_eq!(driver.register(0x14) >> 8 & 7, 0);
    }
    driver.pages = (0, 0);
    live(&mut driver);
    driver.client.disconnect();
    let summary = device.stop();
    assert!(summary.objects_alive.is_empty() && summary.pages.held == 0);
    assert!(summary.pages.dropped_by_reset > 0);
}

#[test]
fn a_guest_that_dies_in_the_middle_leaves_the_next_one_a_fresh_device() {
    let mut device = Device::start();
    for round in 0..3 {
        let mut driver = device.driver();
        driver.init_hca();
        driver.load();
        let mut created = Created::default();
        bring_up_netdev(&mut driver, &mut created);
        // Commands of which the mailboxes are never finished, ones that write long answers, and one that is good.
        for slot in 0..16 {
            driver.post(slot, &input(0x100, 1, 16), 0x1010);
        }
        driver.post(16, &input(0x800, 0, 16), 16);
        driver.ring(0x1_ffff);
        if round == 1 {
            driver.client.disconnect();
        } else {
            drop(driver);
        }
    }
    let mut driver = device.driver();
    assert_eq!(driver.exec(&input(0x800, 0, 16), 16).status(), BAD_SYS_STATE, "nothing of the others is left");
    driver.forget();
    driver.enable();
    live(&mut driver);
    driver.client.disconnect();
    let summary = device.stop();
    assert_eq!((summary.vmms, device.vmm_events("attached"), device.vmm_events("gone")), (4, 4, 4));
    assert!(summary.objects_alive.is_empty() && summary.pages.held == 0);
}
