use flashcore_sys as sys;

use crate::error::{check, text, Result};

/// The device that a plan runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Device {
    /// The host.
    Cpu,
    /// The GPU with this index in the CUDA runtime.
    Cuda(u32),
    /// A simulated GPU; needs a library built with the simulator.
    Sim(u32),
}

impl Device {
    pub(crate) fn to_c(self) -> (i32, i32) {
        // An index that does not fit belongs to no device, and the library reports that.
        let number = |index: u32| i32::try_from(index).unwrap_or(i32::MAX);
        match self {
            Device::Cpu => (sys::FLASHCORE_CPU, 0),
            Device::Cuda(index) => (sys::FLASHCORE_CUDA, number(index)),
            Device::Sim(index) => (sys::FLASHCORE_SIM, number(index)),
        }
    }
}

/// A device that plans can be made for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// The value for [`PlanOptions::device`](crate::PlanOptions::device).
    pub device: Device,
    /// "AMD EPYC", "NVIDIA H200"
    pub name: String,
    /// CUDA: 80, 89, 90, ...
    pub compute_capability: i32,
    /// CUDA: multiprocessors; CPU: hardware threads.
    pub multiprocessors: i32,
    /// CUDA: bytes of shared memory per block.
    pub shared_memory_per_block: i64,
    /// All memory of the device.
    pub memory_bytes: i64,
}

/// Returns every device that plans can be made for. The CPU is always there, and always first.
pub fn devices() -> Result<Vec<DeviceInfo>> {
    let mut count = 0;
    // SAFETY: `count` is a writable number.
    check(unsafe { sys::flashcore_device_count(&mut count) })?;
    let mut found = Vec::new();
    for position in 0..count {
        let mut info = sys::flashcore_device_info::default();
        // SAFETY: `info` is a struct of the size that it states.
        check(unsafe { sys::flashcore_device_get(position, &mut info) })?;
        let index = u32::try_from(info.index).unwrap_or(0);
        let device = match info.kind {
            sys::FLASHCORE_CPU => Device::Cpu,
            sys::FLASHCORE_CUDA => Device::Cuda(index),
            sys::FLASHCORE_SIM => Device::Sim(index),
            _ => continue, // a newer library's kind, which this crate cannot name
        };
        found.push(DeviceInfo {
            device,
            // SAFETY: the library zero-terminates the name.
            name: unsafe { text(info.name.as_ptr()) },
            compute_capability: info.compute_capability,
            multiprocessors: info.multiprocessors,
            shared_memory_per_block: info.shared_memory_per_block,
            memory_bytes: info.memory_bytes,
        });
    }
    Ok(found)
}

/// How the library was built.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BuildInfo {
    /// "0.1.0"
    pub version: String,
    /// "GNU 12.2.0"
    pub compiler: String,
    /// "Release"
    pub build_type: String,
    /// "80+ptx;89;90a", or ""
    pub cuda_targets: String,
    /// The SIMD target that runs here.
    pub cpu_target: String,
    /// CUDA kernels are compiled in.
    pub cuda: bool,
}

/// Returns how the running library was built.
pub fn build_info() -> Result<BuildInfo> {
    let mut info = sys::flashcore_build_info::default();
    // SAFETY: `info` is a struct of the size that it states.
    check(unsafe { sys::flashcore_build_info_get(&mut info) })?;
    // SAFETY: the strings are zero-terminated and never freed.
    unsafe {
        Ok(BuildInfo {
            version: text(info.version),
            compiler: text(info.compiler),
            build_type: text(info.build_type),
            cuda_targets: text(info.cuda_targets),
            cpu_target: text(info.cpu_target),
            cuda: info.cuda != 0,
        })
    }
}

/// Drops the loaded tuning tables of `flashcore tune`; later plans load them again.
pub fn reload_tuning() {
    // SAFETY: the function has no preconditions.
    unsafe { sys::flashcore_reload_tuning() }
}

/// Returns the version of the running library, such as "0.1.0".
pub fn version() -> String {
    // SAFETY: the string is zero-terminated and never freed.
    unsafe { text(sys::flashcore_version()) }
}

/// Returns whether dropout keeps the pair (query, key) of a sequence and query head. The mask is
/// a pure function of the arguments, the same on every device. Indices are below 2^31.
#[allow(clippy::too_many_arguments)]
pub fn dropout_keeps(
    seed: u64,
    offset: u64,
    dropout_p: f32,
    batch: usize,
    head: usize,
    query: usize,
    key: usize,
) -> Result<bool> {
    // An index that does not fit is not below 2^31, and the library reports that.
    let index = |index: usize| i64::try_from(index).unwrap_or(i64::MAX);
    let (batch, head, query, key) = (index(batch), index(head), index(query), index(key));
    let mut keeps = 0;
    // SAFETY: `keeps` is a writable number.
    check(unsafe {
        sys::flashcore_dropout_keeps(seed, offset, dropout_p, batch, head, query, key, &mut keeps)
    })?;
    Ok(keeps != 0)
}
