//! `cx10 conform`: is a kernel ready for hardware that refuses strong ordering?
//!
//! Boots a guest for each kernel and each device that a section needs, walks every way in which memory gets registered,
//! and says for each whether the kernel does what such hardware needs: [`flags`] (access flags of user space),
//! [`internal`] (keys that the driver makes for itself), [`enforcement`] (what a user sees of a refusal), [`unordered`]
//! (keys without order between READ and WRITE), [`protocols`] (kernel protocols and their data). [`session`] is the
//! dialogue with the guest, whose programs are in `guest/`; [`walk`] goes on where a kernel crashes; [`result`] is what
//! is stored, [`text`], [`markdown`] and [`html`] show it, [`expect`] compares two of them.

pub mod enforcement;
pub mod expect;
pub mod flags;
pub mod html;
pub mod internal;
pub mod keys;
pub mod markdown;
pub mod protocols;
pub mod result;
pub mod session;
pub mod text;
pub mod unordered;
pub mod walk;

use crate::run::progress::Progress;
use crate::run::workdir::WorkDir;
use crate::run::{RunError, RunOptions, accel, images};
use crate::sys::SignalFd;
use result::{Kernel, Matrix, SCHEMA};
use std::ffi::OsString;
use walk::Walk;

/// A part of the walk.
#[derive(Clone, Copy)]
pub struct Section {
    /// Its name, the first part of its rows' identifiers.
    pub name: &'static str,
    /// For people.
    pub title: &'static str,
    walk: fn(&mut Walk<'_>) -> Result<(), RunError>,
}

/// All parts, in the order they are walked.
pub const SECTIONS: &[Section] = &[
    Section { name: "flags", title: "Optional access flags", walk: flags::walk },
    Section { name: "internal", title: "Keys that the driver makes for itself", walk: internal::walk },
    Section { name: "enforcement", title: "What a user sees of a refusal", walk: enforcement::walk },
    Section { name: "unordered", title: "Keys without order between READ and WRITE", walk: unordered::walk },
    Section { name: "protocols", title: "Kernel protocols under every legal order", walk: protocols::walk },
];

/// Title of a section.
pub fn section_title(name: &str) -> &str {
    SECTIONS.iter().find(|section| section.name == name).map_or(name, |section| section.title)
}

/// What to walk.
#[derive(Clone, Debug)]
pub struct Options {
    /// Kernels, as `cx10 run --kernel` takes them.
    pub kernels: Vec<String>,
    /// Names of sections; empty for all.
    pub sections: Vec<String>,
    /// Policies under which protocols run; empty for all.
    pub policies: Vec<String>,
    /// Guest and QEMU.
    pub run: RunOptions,
    /// Arguments of the device.
    pub serve: Vec<OsString>,
    /// Name of its profile.
    pub profile: String,
}

impl Options {
    /// Nothing is walked yet.
    pub fn matrix(&self) -> Matrix {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let options = self.serve.iter().map(|option| option.to_string_lossy().into_owned()).collect();
        Matrix { schema: SCHEMA, version, profile: self.profile.clone(), options, complete: false, kernels: Vec::new() }
    }

    /// The sections to walk.
    pub fn chosen(&self) -> impl Iterator<Item = &'static Section> + '_ {
        SECTIONS
            .iter()
            .filter(|section| self.sections.is_empty() || self.sections.iter().any(|name| name == section.name))
    }
}

/// Walks all kernels. An error ends the walk; what `matrix` has until then stands.
pub fn conform(options: &Options, matrix: &mut Matrix) -> Result<(), RunError> {
    let progress = Progress::new(options.run.quiet);
    // A kernel that is not there is told before an hour of walking.
    let mut walks = Vec::new();
    for (at, name) in options.kernels.iter().enumerate() {
        if options.kernels[..at].contains(name) {
            continue;
        }
        let run = RunOptions { kernel: name.clone(), ..options.run.clone() };
        let images = images::ensure(&run, &progress)?;
        walks.push((name, run, images));
    }
    // From here on there is something to clean up. Every thread inherits the mask; each guest's run looks at the signals.
    let signals = SignalFd::new(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP])?;
    for (name, run, images) in walks {
        let work = WorkDir::new()?;
        let accel = accel::decide(&run, &images, &work, &progress, &signals)?;
        let mut walk = Walk::new(run, &images, accel, options.serve.clone(), &work, &progress);
        if !options.policies.is_empty() {
            walk.policies.clone_from(&options.policies);
        }
        let walked = options.chosen().try_for_each(|section| (section.walk)(&mut walk)).and_then(|()| walk.end());
        if !walk.rows.is_empty() {
            let (release, guests) = (walk.release.clone(), walk.guests.clone());
            matrix.kernels.push(Kernel { name: name.clone(), release, guests, rows: std::mem::take(&mut walk.rows) });
        }
        walked?;
    }
    progress.finish();
    Ok(())
}
