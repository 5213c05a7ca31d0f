//! Refusals of runs, plans and options, and their messages.

use flashcore::{
    build_info, devices, explain, version, Arguments, DType, Device, DeviceArguments, ErrorKind,
    Plan, PlanOptions, Problem, Result, Tensor, TensorDesc, TensorMut, Workspace, F16,
};

const SHAPE: [usize; 4] = [1, 2, 16, 32];
const LENGTH: usize = 2 * 16 * 32;

fn desc() -> TensorDesc {
    TensorDesc::contiguous(DType::F32, &SHAPE).unwrap()
}

fn plan(describe: impl FnOnce(Problem) -> Problem) -> Plan {
    let problem = describe(Problem::new(desc(), desc(), desc(), desc()));
    Plan::new(&problem, &PlanOptions::new()).unwrap()
}

/// Returns the message for a run with these arguments, which must leave the output alone.
fn refusal(plan: &Plan, complete: impl for<'a> FnOnce(Arguments<'a>) -> Arguments<'a>) -> String {
    let (data, mut result) = (vec![1.0f32; LENGTH], vec![f32::NAN; LENGTH]);
    let q = Tensor::new(&data, &SHAPE).unwrap();
    let o = TensorMut::new(&mut result, &SHAPE).unwrap();
    let error = plan.run(complete(Arguments::new(q, q, q, o)), &mut Workspace::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(result.iter().all(|x| x.is_nan()));
    error.to_string()
}

/// Otherwise other tensors than the problem's would be read or written past their ends.
#[test]
fn tensors_other_than_the_problems() {
    let plan = plan(|problem| problem);
    let (data, mut result) = (vec![1.0f32; LENGTH], vec![f32::NAN; LENGTH]);
    let halves = vec![F16::default(); LENGTH];
    let right = Tensor::new(&data, &SHAPE).unwrap();
    let wanted = "wanted the problem's f32 [1, 2, 16, 32] with strides [1024, 512, 32, 1]";
    let wrong = [
        (
            Tensor::new(&data[..512], &[1, 1, 16, 32]),
            "f32 [1, 1, 16, 32] with strides [512, 512, 32, 1]",
        ),
        (Tensor::new(&data, &[2, 1, 16, 32]), "f32 [2, 1, 16, 32] with strides [512, 512, 32, 1]"),
        (Tensor::new(&data, &[2, 16, 32]), "f32 [2, 16, 32] with strides [512, 32, 1]"),
        (Tensor::new(&halves, &SHAPE), "f16 [1, 2, 16, 32] with strides [1024, 512, 32, 1]"),
        (
            Tensor::strided(&data, 0, &SHAPE, &[0, 0, 32, 1]),
            "f32 [1, 2, 16, 32] with strides [0, 0, 32, 1]",
        ),
    ];
    for (tensor, text) in wrong {
        let tensor = tensor.unwrap();
        for (name, place) in [("q", 0), ("k", 1), ("v", 2)] {
            let mut inputs = [right; 3];
            inputs[place] = tensor;
            let [q, k, v] = inputs;
            let o = TensorMut::new(&mut result, &SHAPE).unwrap();
            let error = plan.run(Arguments::new(q, k, v, o), &mut Workspace::new()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert_eq!(error.to_string(), format!("{}: is {}, {}", name, text, wanted));
        }
    }
    let o = TensorMut::new(&mut result[..512], &[1, 1, 16, 32]).unwrap();
    let arguments = Arguments::new(right, right, right, o);
    let error = plan.run(arguments, &mut Workspace::new()).unwrap_err().to_string();
    assert!(error.starts_with("o: is f32 [1, 1, 16, 32]"), "{}", error);
    assert!(result.iter().all(|x| x.is_nan()));
}

#[test]
fn tensors_that_are_missing_or_too_many() {
    let lengths = [16];
    let with = plan(|problem| problem.seqlens_kv(&lengths));
    let missing = "seqlens_kv: is missing, wanted i32 [1] with strides [1]";
    assert_eq!(refusal(&with, |arguments| arguments), missing);
    assert_eq!(
        refusal(&with, |arguments| arguments.seqlens_kv(&[16, 16])),
        "seqlens_kv: is i32 [2] with strides [1], wanted the problem's i32 [1] with strides [1]"
    );
    assert_eq!(
        refusal(&with, |arguments| arguments.seqlens_kv(&[17])),
        "seqlens_kv: entry 0 is 17, wanted 0 to 16"
    );
    let without = plan(|problem| problem);
    assert_eq!(
        refusal(&without, |arguments| arguments.sinks(&[0.0f32, 0.0])),
        "sinks: is given, and the problem has none"
    );
    let lse = TensorDesc::contiguous(DType::F32, &SHAPE[..3]).unwrap();
    let state = [1i64, 2];
    let missing = "dropout_state: is missing, wanted i64 [2] with strides [1]";
    let with = plan(|problem| problem.dropout(0.5).dropout_state(&state));
    assert_eq!(refusal(&with, |arguments| arguments), missing);
    assert!(refusal(&plan(|problem| problem.lse(lse)), |arguments| arguments)
        .starts_with("lse: is missing, wanted f32 [1, 2, 16]"));
}

#[test]
fn problems() {
    let message = |problem: Problem, kind| {
        let error = Plan::new(&problem, &PlanOptions::new()).unwrap_err();
        assert_eq!(error.kind(), kind);
        let same = explain(&problem, &PlanOptions::new());
        assert!(same.is_ok() || same == Err(error.clone()));
        error.to_string()
    };
    let invalid = |problem| message(problem, ErrorKind::InvalidArgument);
    let new = || Problem::new(desc(), desc(), desc(), desc());
    assert!(invalid(new().dropout(1.5)).starts_with("dropout_p: is 1.5, wanted 0 to 1"));
    assert!(invalid(new().window(Some(usize::MAX), None)).starts_with("window_left: is 1844"));
    assert!(invalid(new().window(None, Some(1 << 40))).starts_with("window_right: is 1099"));
    assert!(invalid(new().softmax_scale(f32::NAN)).starts_with("softmax_scale: is nan"));
    assert!(invalid(new().max_seqlens(1, 0)).starts_with("max_seqlen_q: is 1, wanted 0 unless"));
    let other = TensorDesc::contiguous(DType::F32, &[1, 2, 16, 31]).unwrap();
    assert!(invalid(Problem::new(desc(), other, desc(), desc())).starts_with("k: shape is"));
    let overlapping = TensorDesc::strided(DType::F32, &SHAPE, &[0, 0, 32, 1]).unwrap();
    assert!(invalid(Problem::new(desc(), desc(), desc(), overlapping)).contains("overlap"));
    // A wrong type for a tensor with a fixed type, to which a run's pointer would be cast.
    let sinks = TensorDesc::contiguous(DType::I32, &[2]).unwrap();
    assert!(invalid(new().sinks(sinks)).starts_with("sinks: dtype is i32, wanted f32"));
    let state = TensorDesc::contiguous(DType::I32, &[2]).unwrap();
    let state = invalid(new().dropout_state(state));
    assert!(state.starts_with("dropout_state: dtype is i32, wanted i64"));
    let lengths = TensorDesc::contiguous(DType::F32, &[1]).unwrap();
    assert!(invalid(new().seqlens_q(lengths)).starts_with("seqlens_q: dtype is f32, wanted i32"));
}

#[test]
fn options() {
    let problem = Problem::new(desc(), desc(), desc(), desc());
    let error = |options| Plan::new(&problem, &options).unwrap_err();
    let unknown = error(PlanOptions::new().kernel("no_such_kernel"));
    assert!(unknown.to_string().contains("no_such_kernel"), "{}", unknown);
    let absent = error(PlanOptions::new().device(Device::Cuda(1000)));
    assert_eq!(absent.kind(), ErrorKind::Unsupported, "{}", absent);
    let as_error: &dyn std::error::Error = &absent;
    assert_eq!(as_error.to_string(), absent.to_string());
}

#[test]
fn verdicts() -> Result<()> {
    let options = PlanOptions::new();
    let problem = Problem::new(desc(), desc(), desc(), desc());
    let verdicts = explain(&problem, &options)?;
    let chosen = verdicts.iter().find(|verdict| verdict.automatic && verdict.refusal.is_none());
    let plan = Plan::new(&problem, &options)?;
    assert_eq!(chosen.map(|verdict| verdict.kernel.as_str()), Some(plan.kernel()));
    assert!(!plan.reason().is_empty());
    assert_eq!(plan.problem(), &problem);
    assert_eq!(plan.device(), Device::Cpu);
    assert!(verdicts.iter().any(|verdict| !verdict.automatic));
    // Only the reference writes f64.
    let f64_desc = TensorDesc::contiguous(DType::F64, &SHAPE)?;
    let verdicts = explain(&Problem::new(desc(), desc(), desc(), f64_desc), &options)?;
    assert!(verdicts.iter().any(|verdict| verdict.refusal.is_some()));
    Ok(())
}

#[test]
fn the_library() -> Result<()> {
    assert_eq!(version(), env!("CARGO_PKG_VERSION"));
    let info = build_info()?;
    assert_eq!(info.version, version());
    assert!(!info.compiler.is_empty() && !info.cpu_target.is_empty());
    let devices = devices()?;
    assert_eq!(devices[0].device, Device::Cpu);
    assert!(devices[0].multiprocessors > 0 && devices[0].memory_bytes > 0);
    Ok(())
}

/// The raw interface on the CPU, where pointers are to host memory.
#[test]
fn raw_pointers() -> Result<()> {
    let plan = plan(|problem| problem);
    let (data, mut result) = (vec![3.0f32; LENGTH], vec![f32::NAN; LENGTH]);
    let q = data.as_ptr().cast();
    let o = result.as_mut_ptr().cast();
    let arguments = DeviceArguments { q, k: q, v: q, o, ..DeviceArguments::default() };
    // SAFETY: the pointers are to host memory of the problem's tensors; without a workspace the
    // library allocates its own on the CPU.
    unsafe { plan.run_on_device(&arguments, std::ptr::null_mut(), 0, std::ptr::null_mut())? };
    assert_eq!(result, data);
    // SAFETY: a null pointer is an error before anything happens.
    let error = unsafe {
        let none = DeviceArguments::default();
        plan.run_on_device(&none, std::ptr::null_mut(), 0, std::ptr::null_mut()).unwrap_err()
    };
    assert!(error.to_string().starts_with("o: pointer is null"), "{}", error);
    Ok(())
}
