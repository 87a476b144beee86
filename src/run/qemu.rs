//! The QEMU command line.
//!
//! The device needs guest memory that it can map (a memfd, shared) and a root port, so that its PCI Express capability
//! is an endpoint's and reaches the driver.

use super::accel::Decided;
use super::guest;
use super::images::Images;
use super::{RunOptions, workdir::WorkDir};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// The kernel's command line: serial console with warnings only, a panic ends the machine, and nothing that costs time
/// under emulation without telling anything about the device.
const APPEND: &str = "console=ttyS0 loglevel=5 panic=-1 mitigations=off rdinit=/init";

/// `prefix` and a path as one QEMU option value: commas are doubled.
pub fn option(prefix: &str, path: &Path) -> OsString {
    let mut bytes = prefix.as_bytes().to_vec();
    for byte in path.as_os_str().as_bytes() {
        bytes.push(*byte);
        if *byte == b',' {
            bytes.push(b',');
        }
    }
    OsString::from_vec(bytes)
}

/// A path in a JSON option. QEMU's JSON is UTF-8; the work directory's name is ours, only `TMPDIR` can spoil it.
fn json(path: &Path) -> String {
    serde_json::Value::from(path.to_string_lossy()).to_string()
}

/// All arguments. `device` is the vfio-user socket.
pub fn arguments(
    options: &RunOptions,
    images: &Images,
    accel: Decided,
    work: &WorkDir,
    device: Option<&Path>,
    share: Option<&Path>,
) -> Vec<OsString> {
    let mut args: Vec<OsString> = Vec::new();
    let mut add = |list: &[&OsStr]| args.extend(list.iter().map(|a| a.to_os_string()));
    let text = OsStr::new;
    let os = OsString::from;

    let memory = options.memory_mib;
    add(&[text("-M"), text("q35,memory-backend=mem,usb=off,vmport=off"), text("-m"), &os(format!("{memory}M"))]);
    add(&[text("-object"), &os(format!("memory-backend-memfd,id=mem,size={memory}M,share=on"))]);
    add(&accel.qemu_args().map(text));
    add(&[text("-smp"), &os(options.smp.to_string())]);
    add(&["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"].map(text));
    add(&[text("-chardev"), &option("file,id=console,path=", &work.path("console.log"))]);
    add(&["-serial", "chardev:console"].map(text));
    add(&[text("-kernel"), images.kernel.as_os_str(), text("-initrd"), work.path("initramfs").as_os_str()]);
    let append = match &options.append {
        Some(more) => format!("{APPEND} {more}"),
        None => APPEND.to_string(),
    };
    add(&[text("-append"), &os(append)]);

    let mut disk = |id: &str, serial: &str, file: &Path| {
        add(&[text("-drive"), &option(&format!("if=none,id={id},format=raw,readonly=on,file="), file)]);
        add(&[text("-device"), &os(format!("virtio-blk-pci,drive={id},serial={serial}"))]);
    };
    disk("root", guest::DISK_ROOT, &images.root);
    if let Some(modules) = &images.modules {
        disk("modules", guest::DISK_MODULES, modules);
    }

    add(&["-device", "virtio-serial-pci"].map(text));
    for (id, port) in ports(options) {
        add(&[text("-chardev"), &option(&format!("socket,id={id},path="), &work.path(id))]);
        let kind = match port {
            Some(name) => format!("virtserialport,chardev={id},name={name}"),
            None => format!("virtconsole,chardev={id}"),
        };
        add(&[text("-device"), &os(kind)]);
    }
    if let Some(dir) = share {
        let fsdev = "local,id=host,security_model=none,readonly=on,multidevs=remap,path=";
        add(&[text("-fsdev"), &option(fsdev, dir)]);
        add(&[text("-device"), &os(format!("virtio-9p-pci,fsdev=host,mount_tag={}", guest::SHARE_TAG))]);
    }
    if let Some(socket) = device {
        // As fast as the fastest profile: the driver complains about a slot that is slower than the card.
        add(&["-device", "pcie-root-port,id=rp0,slot=1,bus=pcie.0,x-speed=64,x-width=16"].map(text));
        let socket = json(socket);
        let device = format!(
            r#"{{"driver":"vfio-user-pci","id":"cx10","bus":"rp0","socket":{{"type":"unix","path":{socket}}}}}"#
        );
        add(&[text("-device"), &os(device)]);
    }
    args.extend(options.qemu_args.iter().cloned());
    args
}

/// Our end of the virtio-serial ports: name of the socket in the work directory, and name of the port (none: a console).
pub fn ports(options: &RunOptions) -> Vec<(&'static str, Option<&'static str>)> {
    let mut ports = vec![("report", Some(guest::PORT_REPORT))];
    if options.shell {
        ports.push(("terminal", None));
    } else if !options.command.is_empty() {
        ports.push(("stdin", Some(guest::PORT_STDIN)));
        ports.push(("stdout", Some(guest::PORT_STDOUT)));
        ports.push(("stderr", Some(guest::PORT_STDERR)));
    }
    ports
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn line(options: &RunOptions, device: Option<&Path>) -> String {
        let images = Images {
            qemu: "/q".into(),
            root: "/r,oot".into(),
            kernel: "/k".into(),
            initramfs: "/i".into(),
            modules: None,
            cache: "/c".into(),
        };
        let work = WorkDir::new().unwrap();
        let args = arguments(options, &images, Decided::Tcg, &work, device, None);
        args.iter().map(|a| a.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn guest_memory_is_shared_and_the_device_sits_behind_a_root_port() {
        let line = line(&RunOptions::default(), Some(&PathBuf::from("/run/x.sock")));
        assert!(line.contains("memory-backend-memfd,id=mem,size=1024M,share=on"), "{line}");
        assert!(line.contains("pcie-root-port,id=rp0"), "{line}");
        assert!(line.contains(r#""bus":"rp0","socket":{"type":"unix","path":"/run/x.sock"}"#), "{line}");
    }

    #[test]
    fn commas_in_paths_are_doubled_and_absent_parts_left_out() {
        let line = line(&RunOptions::default(), None);
        assert!(line.contains("file=/r,,oot"), "{line}");
        assert!(!line.contains("vfio-user") && !line.contains("cx10-modules") && !line.contains("9p"), "{line}");
        assert!(!line.contains(guest::PORT_STDIN), "{line}");
    }

    #[test]
    fn a_command_gets_three_ports_and_a_shell_a_console() {
        let command = RunOptions { command: vec!["true".into()], ..RunOptions::default() };
        assert!(line(&command, None).contains(guest::PORT_STDERR));
        let shell = RunOptions { shell: true, ..RunOptions::default() };
        assert!(line(&shell, None).contains("virtconsole,chardev=terminal"));
    }
}
