//! cx10: an emulated NVIDIA ConnectX-10 NVLink-C2C PCI function (mlx5) served over vfio-user.
//!
//! Module map, top to bottom; a lower layer never calls a higher one:
//!
//! | module | holds |
//! |---|---|
//! | [`cli`] | command line definitions, shared by `main`, the man page and the completions |
//! | [`conform`] | `cx10 conform`: every way of registering memory, kernel by kernel |
//! | [`run`] | `cx10 run`: the device and QEMU together, guest images, the report |
//! | [`engine`] | the event loop that owns the function |
//! | [`transport`] | vfio-user: server loop, messages, glue to the function |
//! | [`device`] | the PCI function: config space, BAR0, events, object tables, reset |
//! | [`cmdif`] | command queue, mailboxes, dispatch, one handler file per object family |
//! | [`mkey`] | memory keys: context, ordering policy, access checks, translation |
//! | [`dma`] | guest memory map, access classes, bus |
//! | [`wire`] | what the port is connected to; frames: layers, checksums, segmentation |
//! | [`trace`] | decoded commands, events, verdict |
//! | [`profile`], [`config`] | device profiles and configuration |
//! | [`prm`] | PRM layouts |
//! | [`litmus`] | litmus programs: the ordering contract against the real engine |
//! | [`log_limit`] | the log where a guest drives it |
//! | [`files`] | files for results: looked at before, written whole |
//! | [`sys`] | the only unsafe code |
//! | [`testing`] | a driver in process, for tests, fuzz targets and benches |

pub mod cli;
pub mod cmdif;
pub mod config;
pub mod conform;
pub mod device;
pub mod dma;
pub mod engine;
pub mod files;
pub mod litmus;
pub mod log_limit;
pub mod mkey;
pub mod prm;
pub mod profile;
pub mod run;
pub mod sys;
pub mod testing;
pub mod trace;
pub mod transport;
pub mod wire;
