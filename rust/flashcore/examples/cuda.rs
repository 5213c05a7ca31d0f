//! Attention on GPU 0 through raw pointers and a stream, compared with the CPU. Prints a message if
//! the library finds no usable GPU.
//!
//!     cargo run --example cuda
//!
//! The memory comes from a few functions of the CUDA driver, loaded at run time, so that no
//! crate and no toolkit are needed. A real program would use a crate; README.md shows the
//! same with `cudarc`.

use flashcore::{
    devices, Arguments, Device, DeviceArguments, Plan, PlanOptions, Problem, Tensor, TensorMut,
    Workspace, F16,
};

const SHAPE: [usize; 4] = [1, 8, 512, 64];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Device::Cuda(0);
    if !devices()?.iter().any(|info| info.device == device) {
        println!("There is no GPU here that the library can use.");
        return Ok(());
    }
    let count = SHAPE.iter().product();
    let numbers = |step: f32| -> Vec<F16> {
        (0..count).map(|i| F16::from_f32((i as f32 * step).sin())).collect()
    };
    let (queries, keys, values) = (numbers(0.1), numbers(0.2), numbers(0.3));
    let q = Tensor::new(&queries, &SHAPE)?;
    let k = Tensor::new(&keys, &SHAPE)?;
    let v = Tensor::new(&values, &SHAPE)?;
    let mut expected = vec![F16::default(); count];
    let o = TensorMut::new(&mut expected, &SHAPE)?;
    let problem = Problem::new(q, k, v, &o).causal(true);
    let on_cpu = Plan::new(&problem, &PlanOptions::new())?;
    on_cpu.run(Arguments::new(q, k, v, o), &mut Workspace::new())?;

    let plan = Plan::new(&problem, &PlanOptions::new().device(device))?;
    let gpu = driver::Gpu::new(0)?;
    let stream = gpu.stream()?;
    let (q, k, v) = (gpu.copy_of(&queries)?, gpu.copy_of(&keys)?, gpu.copy_of(&values)?);
    let o = gpu.buffer(count * std::mem::size_of::<F16>())?;
    let workspace = gpu.buffer(plan.workspace_bytes())?; // cuMemAlloc aligns to 256 bytes
    let arguments = DeviceArguments {
        q: q.pointer(),
        k: k.pointer(),
        v: v.pointer(),
        o: o.pointer(),
        ..DeviceArguments::default()
    };
    // SAFETY: each pointer is to memory of GPU 0 with the elements of `SHAPE`, row-major, as in the
    // problem; the workspace has the size that the plan needs. The stream belongs to GPU 0. All
    // buffers live until the stream is synchronised, and nothing else uses them before that.
    unsafe {
        plan.run_on_device(&arguments, workspace.pointer(), plan.workspace_bytes(), stream)?;
    }
    gpu.synchronise(stream)?;

    let mut found = vec![0u16; count];
    gpu.copy_back(&o, &mut found)?;
    let found = F16::from_bits_slice(&found);
    let errors = found.iter().zip(&expected).map(|(a, b)| (a.to_f32() - b.to_f32()).abs());
    let largest = errors.fold(0.0, f32::max);
    println!("{}: {}", plan.kernel(), plan.reason());
    println!("largest difference from the CPU's {}: {}", on_cpu.kernel(), largest);
    assert!(largest < 2e-3, "the results differ");
    Ok(())
}

/// The functions of libcuda.so.1 that this program needs. Errors are CUDA's numbers.
mod driver {
    use std::ffi::CString;
    use std::os::raw::{c_char, c_int, c_uint, c_void};

    extern "C" {
        fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
        fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    }

    const RTLD_NOW: c_int = 2;

    type Error = Box<dyn std::error::Error>;

    /// A GPU with its primary context, which the CUDA runtime uses, too.
    pub struct Gpu {
        allocate: unsafe extern "C" fn(*mut u64, usize) -> c_int,
        free: unsafe extern "C" fn(u64) -> c_int,
        copy_in: unsafe extern "C" fn(u64, *const c_void, usize) -> c_int,
        copy_out: unsafe extern "C" fn(*mut c_void, u64, usize) -> c_int,
        create_stream: unsafe extern "C" fn(*mut *mut c_void, c_uint) -> c_int,
        wait: unsafe extern "C" fn(*mut c_void) -> c_int,
    }

    /// Memory on the GPU, freed when it is dropped.
    pub struct Buffer {
        address: u64,
        bytes: usize,
        free: unsafe extern "C" fn(u64) -> c_int,
    }

    impl Buffer {
        pub fn pointer(&self) -> *mut c_void {
            self.address as *mut c_void
        }
    }

    impl Drop for Buffer {
        fn drop(&mut self) {
            // SAFETY: the address is from cuMemAlloc, or 0, which only causes an error.
            unsafe { (self.free)(self.address) };
        }
    }

    fn check(name: &str, status: c_int) -> Result<(), Error> {
        match status {
            0 => Ok(()),
            number => Err(format!("{}: error {}", name, number).into()),
        }
    }

    impl Gpu {
        pub fn new(number: c_int) -> Result<Gpu, Error> {
            // SAFETY: the names are zero-terminated; the functions have the signatures of cuda.h,
            // and are plain function pointers; outputs are local variables.
            unsafe {
                let library = dlopen(b"libcuda.so.1\0".as_ptr().cast(), RTLD_NOW);
                if library.is_null() {
                    return Err("libcuda.so.1: does not load".into());
                }
                let function = |name: &str| -> Result<*mut c_void, Error> {
                    let name = CString::new(name)?;
                    let found = dlsym(library, name.as_ptr());
                    if found.is_null() {
                        return Err(format!("libcuda.so.1: has no {:?}", name).into());
                    }
                    Ok(found)
                };
                macro_rules! typed {
                    ($name:literal, ($($parameter:ty),*)) => {
                        std::mem::transmute::<
                            *mut c_void,
                            unsafe extern "C" fn($($parameter),*) -> c_int,
                        >(function($name)?)
                    };
                }
                check("cuInit", typed!("cuInit", (c_uint))(0))?;
                let mut device = 0;
                let get_device = typed!("cuDeviceGet", (*mut c_int, c_int));
                check("cuDeviceGet", get_device(&mut device, number))?;
                let mut context = std::ptr::null_mut();
                let retain = typed!("cuDevicePrimaryCtxRetain", (*mut *mut c_void, c_int));
                check("cuDevicePrimaryCtxRetain", retain(&mut context, device))?;
                check("cuCtxSetCurrent", typed!("cuCtxSetCurrent", (*mut c_void))(context))?;
                Ok(Gpu {
                    allocate: typed!("cuMemAlloc_v2", (*mut u64, usize)),
                    free: typed!("cuMemFree_v2", (u64)),
                    copy_in: typed!("cuMemcpyHtoD_v2", (u64, *const c_void, usize)),
                    copy_out: typed!("cuMemcpyDtoH_v2", (*mut c_void, u64, usize)),
                    create_stream: typed!("cuStreamCreate", (*mut *mut c_void, c_uint)),
                    wait: typed!("cuStreamSynchronize", (*mut c_void)),
                })
            }
        }

        pub fn stream(&self) -> Result<*mut c_void, Error> {
            let mut stream = std::ptr::null_mut();
            // SAFETY: the output is a local variable.
            check("cuStreamCreate", unsafe { (self.create_stream)(&mut stream, 0) })?;
            Ok(stream)
        }

        pub fn synchronise(&self, stream: *mut c_void) -> Result<(), Error> {
            // SAFETY: the driver refuses invalid streams, and keeps no pointer.
            check("cuStreamSynchronize", unsafe { (self.wait)(stream) })
        }

        pub fn buffer(&self, bytes: usize) -> Result<Buffer, Error> {
            let mut address = 0;
            // SAFETY: the output is a local variable.
            check("cuMemAlloc", unsafe { (self.allocate)(&mut address, bytes.max(1)) })?;
            Ok(Buffer { address, bytes, free: self.free })
        }

        /// A buffer with a copy of these elements, complete on return.
        pub fn copy_of<T: Copy>(&self, data: &[T]) -> Result<Buffer, Error> {
            let buffer = self.buffer(std::mem::size_of_val(data))?;
            // SAFETY: both sides have this number of bytes.
            let status =
                unsafe { (self.copy_in)(buffer.address, data.as_ptr().cast(), buffer.bytes) };
            check("cuMemcpyHtoD", status)?;
            Ok(buffer)
        }

        pub fn copy_back(&self, buffer: &Buffer, data: &mut [u16]) -> Result<(), Error> {
            let bytes = buffer.bytes.min(std::mem::size_of_val(data));
            // SAFETY: both sides have this number of bytes, and every bit pattern is a number.
            let status =
                unsafe { (self.copy_out)(data.as_mut_ptr().cast(), buffer.address, bytes) };
            check("cuMemcpyDtoH", status)
        }
    }
}
