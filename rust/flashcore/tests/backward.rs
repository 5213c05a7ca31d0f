//! Compares gradients on the CPU with fp64 formulas that are written here, and tests refusals.

use flashcore::{
    explain_backward, Arguments, BackwardArguments, BackwardPlan, DType, DeviceArguments,
    DeviceBackwardArguments, ErrorKind, Gradients, Plan, PlanOptions, Problem, Result, Tensor,
    TensorDesc, TensorMut, Workspace,
};

const HQ: usize = 4;
const HKV: usize = 2;
const SQ: usize = 9;
const SKV: usize = 13;
const D: usize = 8;
const Q: [usize; 4] = [1, HQ, SQ, D];
const KV: [usize; 4] = [1, HKV, SKV, D];
const SCALE: f64 = 0.5;

/// Numbers between -1 and 1, the same in every run.
fn numbers(seed: usize, count: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7919 + seed * 104_729) as f32 * 0.618).sin()).collect()
}

struct Data {
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    bias: Vec<f32>,
    sinks: Vec<f32>,
    d_o: Vec<f32>,
    d_lse: Vec<f32>,
    o: Vec<f32>,
    lse: Vec<f32>,
}

fn describe(data: &Data) -> Problem {
    let (q, kv) = (desc(&Q), desc(&KV));
    let bias = Tensor::new(&data.bias, &[1, HQ, 1, SKV]).unwrap();
    let problem = Problem::new(q, kv, kv, q).lse(desc(&Q[..3])).bias(bias).sinks(&data.sinks);
    problem.softmax_scale(SCALE as f32).causal(true)
}

fn desc(shape: &[usize]) -> TensorDesc {
    TensorDesc::contiguous(DType::F32, shape).unwrap()
}

impl Data {
    /// With the forward pass's outputs.
    fn new() -> Data {
        let mut data = Data {
            q: numbers(1, HQ * SQ * D),
            k: numbers(2, HKV * SKV * D),
            v: numbers(3, HKV * SKV * D),
            bias: numbers(4, HQ * SKV),
            sinks: numbers(5, HQ),
            d_o: numbers(6, HQ * SQ * D),
            d_lse: numbers(7, HQ * SQ),
            o: vec![f32::NAN; HQ * SQ * D],
            lse: vec![f32::NAN; HQ * SQ],
        };
        let plan = Plan::new(&describe(&data), &PlanOptions::new()).unwrap();
        let (mut o, mut lse) = (data.o.clone(), data.lse.clone());
        let arguments = Arguments::new(
            Tensor::new(&data.q, &Q).unwrap(),
            Tensor::new(&data.k, &KV).unwrap(),
            Tensor::new(&data.v, &KV).unwrap(),
            TensorMut::new(&mut o, &Q).unwrap(),
        );
        let arguments = arguments.lse(TensorMut::new(&mut lse, &Q[..3]).unwrap());
        let arguments = arguments.bias(Tensor::new(&data.bias, &[1, HQ, 1, SKV]).unwrap());
        plan.run(arguments.sinks(&data.sinks), &mut Workspace::new()).unwrap();
        (data.o, data.lse) = (o, lse);
        data
    }

    /// Without outputs for its own gradients.
    fn arguments(&self) -> BackwardArguments<'_> {
        BackwardArguments::new(
            Tensor::new(&self.q, &Q).unwrap(),
            Tensor::new(&self.k, &KV).unwrap(),
            Tensor::new(&self.v, &KV).unwrap(),
            Tensor::new(&self.o, &Q).unwrap(),
            Tensor::new(&self.lse, &Q[..3]).unwrap(),
        )
        .bias(Tensor::new(&self.bias, &[1, HQ, 1, SKV]).unwrap())
        .sinks(&self.sinks)
        .d_o(Tensor::new(&self.d_o, &Q).unwrap())
        .d_lse(Tensor::new(&self.d_lse, &Q[..3]).unwrap())
    }
}

fn gradients() -> Gradients {
    let (q, kv) = (desc(&Q), desc(&KV));
    let gradients = Gradients::new(q, q, kv, kv).d_lse(desc(&Q[..3]));
    gradients.d_bias(desc(&[1, HQ, 1, SKV])).d_sinks(desc(&[HQ]))
}

#[derive(Default)]
struct Expected {
    dq: Vec<f64>,
    dk: Vec<f64>,
    dv: Vec<f64>,
    d_bias: Vec<f64>,
    d_sinks: Vec<f64>,
}

/// P = exp(S - LSE), dV = P^T dO, dS = P (dO V^T - rowsum(dO O) + dLSE), dQ = scale dS K, dK =
/// scale dS^T Q; a sink is a key with a value of 0.
fn expected(data: &Data) -> Expected {
    let mut wanted = Expected {
        dq: vec![0.0; HQ * SQ * D],
        dk: vec![0.0; HKV * SKV * D],
        dv: vec![0.0; HKV * SKV * D],
        d_bias: vec![0.0; HQ * SKV],
        d_sinks: vec![0.0; HQ],
    };
    let wide = |data: &[f32]| data.iter().map(|&x| f64::from(x)).collect::<Vec<f64>>();
    let dot = |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
    let (q, k, v, d_o) = (wide(&data.q), wide(&data.k), wide(&data.v), wide(&data.d_o));
    for h in 0..HQ {
        for i in 0..SQ {
            let row = (h * SQ + i) * D..(h * SQ + i + 1) * D;
            let key = |j: usize| {
                let place = (h / (HQ / HKV) * SKV + j) * D;
                place..place + D
            };
            let seen = 0..i + SKV - SQ + 1;
            let score = |j: usize| {
                SCALE * dot(&q[row.clone()], &k[key(j)]) + f64::from(data.bias[h * SKV + j])
            };
            let sink = f64::from(data.sinks[h]).exp();
            let sum: f64 = seen.clone().map(|j| score(j).exp()).sum::<f64>() + sink;
            let p = |j: usize| score(j).exp() / sum;
            let d_p = |j: usize| dot(&d_o[row.clone()], &v[key(j)]);
            let delta = seen.clone().map(|j| p(j) * d_p(j)).sum::<f64>()
                - f64::from(data.d_lse[h * SQ + i]);
            wanted.d_sinks[h] -= sink / sum * delta;
            for j in seen {
                let d_s = p(j) * (d_p(j) - delta);
                wanted.d_bias[h * SKV + j] += d_s;
                for d in 0..D {
                    wanted.dq[row.start + d] += SCALE * d_s * k[key(j).start + d];
                    wanted.dk[key(j).start + d] += SCALE * d_s * q[row.start + d];
                    wanted.dv[key(j).start + d] += p(j) * d_o[row.start + d];
                }
            }
        }
    }
    wanted
}

fn assert_close(name: &str, found: &[f32], wanted: &[f64]) {
    assert_eq!(found.len(), wanted.len());
    for (index, (&found, &wanted)) in found.iter().zip(wanted).enumerate() {
        let error = (f64::from(found) - wanted).abs() / wanted.abs().max(1.0);
        assert!(error < 2e-5, "{}, element {}: is {}, wanted {}", name, index, found, wanted);
    }
}

#[test]
fn gradients_are_right() -> Result<()> {
    let data = Data::new();
    let plan = BackwardPlan::new(&describe(&data), &gradients(), &PlanOptions::new())?;
    assert!(!plan.kernel().is_empty() && plan.problem() == &describe(&data));
    let mut dq = vec![f32::NAN; data.q.len()];
    let (mut dk, mut dv) = (vec![f32::NAN; data.k.len()], vec![f32::NAN; data.v.len()]);
    let (mut d_bias, mut d_sinks) = (vec![f32::NAN; HQ * SKV], vec![f32::NAN; HQ]);
    let arguments = data
        .arguments()
        .dq(TensorMut::new(&mut dq, &Q)?)
        .dk(TensorMut::new(&mut dk, &KV)?)
        .dv(TensorMut::new(&mut dv, &KV)?)
        .d_bias(TensorMut::new(&mut d_bias, &[1, HQ, 1, SKV])?)
        .d_sinks(TensorMut::new(&mut d_sinks, &[HQ])?);
    plan.run(arguments, &mut Workspace::new())?;
    let wanted = expected(&data);
    assert_close("dq", &dq, &wanted.dq);
    assert_close("dk", &dk, &wanted.dk);
    assert_close("dv", &dv, &wanted.dv);
    assert_close("d_bias", &d_bias, &wanted.d_bias);
    assert_close("d_sinks", &d_sinks, &wanted.d_sinks);
    Ok(())
}

/// Seed and offset from memory give the same bits as the numbers do, with
/// and without `deterministic`.
#[test]
fn dropout_from_memory() -> Result<()> {
    let (data, state) = (Data::new(), [-7i64, 11]);
    let dv = |problem: Problem, arguments: BackwardArguments<'_>, deterministic| -> Result<_> {
        let options = PlanOptions::new().deterministic(deterministic);
        let wanted = Gradients::new(desc(&Q), desc(&Q), desc(&KV), desc(&KV)).d_lse(desc(&Q[..3]));
        let plan = BackwardPlan::new(&problem.dropout(0.5), &wanted, &options)?;
        let mut dq = vec![f32::NAN; data.q.len()];
        let (mut dk, mut dv) = (vec![f32::NAN; data.k.len()], vec![f32::NAN; data.v.len()]);
        let arguments = arguments
            .dq(TensorMut::new(&mut dq, &Q)?)
            .dk(TensorMut::new(&mut dk, &KV)?)
            .dv(TensorMut::new(&mut dv, &KV)?);
        plan.run(arguments, &mut Workspace::new())?;
        Ok(dv)
    };
    let with_numbers = dv(describe(&data), data.arguments().dropout(-7i64 as u64, 11), true)?;
    let with_state = describe(&data).dropout_state(&state);
    assert_eq!(dv(with_state.clone(), data.arguments().dropout_state(&state), true)?, with_numbers);
    assert_ne!(
        dv(with_state.clone(), data.arguments().dropout_state(&[-7i64, 12]), true)?,
        with_numbers
    );
    let any_order = dv(with_state, data.arguments().dropout_state(&state), false)?;
    let wide: Vec<f64> = with_numbers.iter().map(|&x| f64::from(x)).collect();
    assert_close("dv", &any_order, &wide);
    Ok(())
}

#[test]
fn runs_with_other_tensors_are_refused() -> Result<()> {
    let data = Data::new();
    let plan = BackwardPlan::new(&describe(&data), &gradients(), &PlanOptions::new())?;
    let (mut dq, mut short) = (vec![f32::NAN; data.q.len()], vec![f32::NAN; D]);
    let refusal = |arguments| plan.run(arguments, &mut Workspace::new()).unwrap_err().to_string();
    assert!(refusal(data.arguments()).starts_with("dq: is missing, wanted f32 [1, 4, 9, 8]"));
    let arguments = data.arguments().dq(TensorMut::new(&mut short, &[1, 1, 1, D])?);
    assert!(refusal(arguments).starts_with("dq: is f32 [1, 1, 1, 8]"));
    let arguments = data.arguments().d_o(Tensor::new(&data.k, &KV)?);
    let arguments = arguments.dq(TensorMut::new(&mut dq, &Q)?);
    assert!(refusal(arguments).starts_with("d_o: is f32 [1, 2, 13, 8]"));
    assert!(dq.iter().chain(&short).all(|x| x.is_nan()));
    Ok(())
}

#[test]
fn problems_without_a_backward_pass_are_refused() -> Result<()> {
    let (q, options) = (desc(&[1, 2, 16, 32]), PlanOptions::new());
    let without_lse = Problem::new(q, q, q, q);
    let error = BackwardPlan::new(&without_lse, &Gradients::new(q, q, q, q), &options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().starts_with("lse: is missing"), "{}", error);
    let problem = without_lse.lse(desc(&[1, 2, 16]));
    let other = Gradients::new(q, desc(&[1, 2, 16, 31]), q, q);
    let error = BackwardPlan::new(&problem, &other, &options).unwrap_err();
    assert!(error.to_string().starts_with("dq: shape is"), "{}", error);
    let verdicts = explain_backward(&problem, &Gradients::new(q, q, q, q), &options)?;
    let plan = BackwardPlan::new(&problem, &Gradients::new(q, q, q, q), &options)?;
    assert!(verdicts.iter().any(|one| one.kernel == plan.kernel() && one.refusal.is_none()));
    assert!(explain_backward(&problem, &other, &options).is_err());
    Ok(())
}

/// The raw interface on the CPU, where pointers are to host memory.
#[test]
fn raw_pointers() -> Result<()> {
    let data = Data::new();
    let (q, kv) = (desc(&Q), desc(&KV));
    let gradients = Gradients::new(q, q, kv, kv);
    let plan = BackwardPlan::new(&describe(&data), &gradients, &PlanOptions::new())?;
    let mut dq = vec![f32::NAN; data.q.len()];
    let (mut dk, mut dv) = (vec![f32::NAN; data.k.len()], vec![f32::NAN; data.v.len()]);
    let arguments = DeviceBackwardArguments {
        forward: DeviceArguments {
            q: data.q.as_ptr().cast(),
            k: data.k.as_ptr().cast(),
            v: data.v.as_ptr().cast(),
            o: data.o.as_ptr() as *mut _,
            lse: data.lse.as_ptr() as *mut _,
            bias: data.bias.as_ptr().cast(),
            sinks: data.sinks.as_ptr(),
            ..DeviceArguments::default()
        },
        d_o: data.d_o.as_ptr().cast(),
        dq: dq.as_mut_ptr().cast(),
        dk: dk.as_mut_ptr().cast(),
        dv: dv.as_mut_ptr().cast(),
        ..DeviceBackwardArguments::default()
    };
    // SAFETY: the pointers are to host memory of the problem's tensors and of the
    // gradients; O and LSE are only read. Without a workspace the library allocates its own
    // on the CPU.
    unsafe { plan.run_on_device(&arguments, std::ptr::null_mut(), 0, std::ptr::null_mut())? };
    let without = Data { d_lse: vec![0.0; data.d_lse.len()], ..data };
    assert_close("dq", &dq, &expected(&without).dq);
    assert_close("dv", &dv, &expected(&without).dv);
    Ok(())
}
