//! Compares CPU runs with an fp64 computation that is written here, from docs/semantics.md, so that
//! every option of the Rust interface reaches the library unchanged.

use flashcore::{
    dropout_keeps, Alignment, Arguments, Bf16, DType, OutputElement, Plan, PlanOptions, Problem,
    Tensor, TensorDesc, TensorMut, Workspace, F16, F8E4M3, F8E5M2,
};

/// Numbers between -1 and 1, the same in every run.
fn numbers(seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

const B: usize = 2;
const HQ: usize = 4;
const HKV: usize = 2;
const SQ: usize = 13;
const SKV: usize = 21;
const D: usize = 16;
const DV: usize = 8;

/// One row: query `i` of entry `b` and head `h`. `score` applies the steps after the softmax scale,
/// and is None for a removed pair; `weight` is dropout's factor. Returns O's row and the LSE.
fn row(
    keys: usize,
    query: &[f32],
    key: impl Fn(usize) -> Vec<f32>,
    value: impl Fn(usize) -> Vec<f32>,
    score: impl Fn(usize, f64) -> Option<f64>,
    weight: impl Fn(usize) -> f64,
    sink: Option<f32>,
) -> (Vec<f64>, f64) {
    let scores: Vec<f64> = (0..keys)
        .map(|j| {
            let dot: f64 =
                query.iter().zip(key(j)).map(|(&a, b)| f64::from(a) * f64::from(b)).sum();
            score(j, dot).unwrap_or(f64::NEG_INFINITY)
        })
        .collect();
    let sum: f64 = scores.iter().map(|s| s.exp()).sum::<f64>();
    let sum = sum + sink.map_or(0.0, |sink| f64::from(sink).exp());
    let mut o = vec![0.0; DV];
    for (j, score) in scores.iter().enumerate().filter(|(_, score)| score.is_finite()) {
        for (out, v) in o.iter_mut().zip(value(j)) {
            *out += score.exp() / sum * weight(j) * f64::from(v);
        }
    }
    (o, sum.ln())
}

/// All rows of a dense problem with the row-major tensors of `Data`.
fn expected(
    data: &Data,
    score: impl Fn([usize; 4], f64) -> Option<f64>,
    weight: impl Fn([usize; 4]) -> f64,
    sinks: Option<&[f32]>,
) -> (Vec<f64>, Vec<f64>) {
    let (mut o, mut lse) = (Vec::new(), Vec::new());
    for b in 0..B {
        for h in 0..HQ {
            for i in 0..SQ {
                let head = b * HKV + h / (HQ / HKV);
                let (out, log) = row(
                    SKV,
                    &data.q[((b * HQ + h) * SQ + i) * D..][..D],
                    |j| data.k[(head * SKV + j) * D..][..D].to_vec(),
                    |j| data.v[(head * SKV + j) * DV..][..DV].to_vec(),
                    |j, dot| score([b, h, i, j], dot),
                    |j| weight([b, h, i, j]),
                    sinks.map(|sinks| sinks[h]),
                );
                o.extend(out);
                lse.push(log);
            }
        }
    }
    (o, lse)
}

struct Data {
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
}

impl Data {
    fn new() -> Data {
        Data {
            q: numbers(1, B * HQ * SQ * D),
            k: numbers(2, B * HKV * SKV * D),
            v: numbers(3, B * HKV * SKV * DV),
        }
    }

    fn views(&self) -> (Tensor<'_>, Tensor<'_>, Tensor<'_>) {
        (
            Tensor::new(&self.q, &[B, HQ, SQ, D]).unwrap(),
            Tensor::new(&self.k, &[B, HKV, SKV, D]).unwrap(),
            Tensor::new(&self.v, &[B, HKV, SKV, DV]).unwrap(),
        )
    }

    /// Runs a problem of O and LSE with these data. Returns O and the LSE.
    fn run<'a>(
        &'a self,
        describe: impl FnOnce(Problem) -> Problem,
        complete: impl FnOnce(Arguments<'a>) -> Arguments<'a>,
        o: &'a mut [f32],
        lse: &'a mut [f32],
    ) {
        let (q, k, v) = self.views();
        let o = TensorMut::new(o, &[B, HQ, SQ, DV]).unwrap();
        let lse = TensorMut::new(lse, &[B, HQ, SQ]).unwrap();
        let problem = describe(Problem::new(q, k, v, &o).lse(&lse));
        let plan = Plan::new(&problem, &PlanOptions::new()).unwrap();
        let arguments = complete(Arguments::new(q, k, v, o).lse(lse));
        plan.run(arguments, &mut Workspace::new()).unwrap();
    }
}

fn outputs() -> (Vec<f32>, Vec<f32>) {
    (vec![f32::NAN; B * HQ * SQ * DV], vec![f32::NAN; B * HQ * SQ])
}

fn assert_close(found: &[f32], wanted: &[f64], tolerance: f64) {
    assert_eq!(found.len(), wanted.len());
    for (index, (&found, &wanted)) in found.iter().zip(wanted).enumerate() {
        let error = (f64::from(found) - wanted).abs() / wanted.abs().max(1.0);
        let equal = error <= tolerance || f64::from(found) == wanted; // infinities
        assert!(equal, "element {}: is {}, wanted {}", index, found, wanted);
    }
}

const SCALE: f64 = 0.25; // 1 / sqrt(D)

// The gates of docs/accuracy.md for f32.
const O_GATE: f64 = 2e-5;
const LSE_GATE: f64 = 1e-4;

fn assert_both(o: &[f32], lse: &[f32], wanted: &(Vec<f64>, Vec<f64>)) {
    assert_close(o, &wanted.0, O_GATE);
    assert_close(lse, &wanted.1, LSE_GATE);
}

#[test]
fn plain() {
    let (data, (mut o, mut lse)) = (Data::new(), outputs());
    data.run(|problem| problem, |arguments| arguments, &mut o, &mut lse);
    let wanted = expected(&data, |_, dot| Some(SCALE * dot), |_| 1.0, None);
    assert_both(&o, &lse, &wanted);
}

#[test]
fn scale_softcap_causal_sinks() {
    let (data, (mut o, mut lse)) = (Data::new(), outputs());
    let sinks = numbers(4, HQ);
    data.run(
        |problem| problem.softmax_scale(2.0).softcap(1.5).causal(true).sinks(&sinks),
        |arguments| arguments.sinks(&sinks),
        &mut o,
        &mut lse,
    );
    let score = |[_, _, i, j]: [usize; 4], dot: f64| {
        (j <= i + SKV - SQ).then(|| 1.5 * (2.0 * dot / 1.5).tanh())
    };
    let wanted = expected(&data, score, |_| 1.0, Some(&sinks));
    assert_both(&o, &lse, &wanted);
}

#[test]
fn windows_and_alignments() {
    let data = Data::new();
    let cases = [
        (Alignment::TopLeft, 0, (Some(3), Some(2))),
        (Alignment::BottomRight, (SKV - SQ) as i64, (Some(0), None)),
        (Alignment::Given(-2), -2, (None, Some(4))),
    ];
    for (alignment, offset, (left, right)) in cases {
        let (mut o, mut lse) = outputs();
        data.run(
            |problem| problem.alignment(alignment).window(left, right),
            |arguments| arguments,
            &mut o,
            &mut lse,
        );
        let score = |[_, _, i, j]: [usize; 4], dot: f64| {
            let past = j as i64 - (i as i64 + offset);
            let seen = left.map_or(true, |left| past >= -(left as i64))
                && right.map_or(true, |right| past <= right as i64);
            seen.then_some(SCALE * dot)
        };
        let wanted = expected(&data, score, |_| 1.0, None);
        assert_both(&o, &lse, &wanted);
    }
}

#[test]
fn bias_mask_alibi_and_offsets_of_entries() {
    let (data, (mut o, mut lse)) = (Data::new(), outputs());
    let bias = numbers(5, HQ * SQ * SKV);
    let mask: Vec<bool> = numbers(6, B * SKV).iter().map(|&x| x < 0.5).collect();
    let slopes = numbers(7, HQ);
    let offsets = [4, -1];
    let (bias_view, mask_view) = (
        Tensor::new(&bias, &[1, HQ, SQ, SKV]).unwrap(),
        Tensor::new(&mask, &[B, 1, 1, SKV]).unwrap(),
    );
    data.run(
        |problem| {
            let problem = problem.bias(bias_view).mask(mask_view).alibi_slopes(&slopes);
            problem.causal(true).causal_offsets(&offsets)
        },
        |arguments| {
            let arguments = arguments.bias(bias_view).mask(mask_view).alibi_slopes(&slopes);
            arguments.causal_offsets(&offsets)
        },
        &mut o,
        &mut lse,
    );
    let score = |[b, h, i, j]: [usize; 4], dot: f64| {
        let distance = j as i64 - (i as i64 + i64::from(offsets[b]));
        (mask[b * SKV + j] && distance <= 0).then(|| {
            SCALE * dot + f64::from(bias[(h * SQ + i) * SKV + j])
                - f64::from(slopes[h]) * distance.abs() as f64
        })
    };
    let wanted = expected(&data, score, |_| 1.0, None);
    assert!(wanted.1.contains(&f64::NEG_INFINITY)); // rows that see no key
    assert_both(&o, &lse, &wanted);
}

#[test]
fn lengths() {
    let (data, (mut o, mut lse)) = (Data::new(), outputs());
    let (queries, keys) = ([5, 13], [21, 9]);
    data.run(
        |problem| problem.seqlens_q(&queries).seqlens_kv(&keys),
        |arguments| arguments.seqlens_q(&queries).seqlens_kv(&keys),
        &mut o,
        &mut lse,
    );
    let score = |[b, _, i, j]: [usize; 4], dot: f64| {
        ((i as i32) < queries[b] && (j as i32) < keys[b]).then_some(SCALE * dot)
    };
    let wanted = expected(&data, score, |_| 1.0, None);
    assert_both(&o, &lse, &wanted);
}

#[test]
fn dropout() {
    let (data, (mut o, mut lse)) = (Data::new(), outputs());
    let (seed, offset, p) = (0x1234_5678_9abc_def0, 7, 0.375f32);
    data.run(
        |problem| problem.dropout(p),
        |arguments| arguments.dropout(seed, offset),
        &mut o,
        &mut lse,
    );
    let keeps = |[b, h, i, j]: [usize; 4]| dropout_keeps(seed, offset, p, b, h, i, j).unwrap();
    let weight = |at| if keeps(at) { 1.0 / (1.0 - f64::from(p)) } else { 0.0 };
    let wanted = expected(&data, |_, dot| Some(SCALE * dot), weight, None);
    assert_both(&o, &lse, &wanted);
    // Seed and offset from memory; the numbers are ignored then.
    let (same, state) = (outputs(), [seed as i64, offset as i64]);
    let (mut same_o, mut same_lse) = same;
    data.run(
        |problem| problem.dropout(p).dropout_state(&state),
        |arguments| arguments.dropout(1, 1).dropout_state(&state),
        &mut same_o,
        &mut same_lse,
    );
    assert_eq!((same_o, same_lse), (o, lse));
    assert!(dropout_keeps(0, 0, 0.5, 1 << 31, 0, 0, 0).is_err());
    assert!(dropout_keeps(0, 0, f32::NAN, 0, 0, 0, 0).is_err());
}

/// O as a buffer `[B, S, H, D]`, keys backwards in memory, one query head that serves all heads.
#[test]
fn strides() {
    let data = Data::new();
    let (_, k, v) = data.views();
    let mut o = vec![f32::NAN; B * SQ * HQ * DV];
    let one_head = numbers(8, B * SQ * D);
    let q = Tensor::strided(&one_head, 0, &[B, HQ, SQ, D], &[(SQ * D) as isize, 0, D as isize, 1]);
    let q = q.unwrap();
    let backwards: Vec<f32> = data.k.chunks(D).rev().flatten().copied().collect();
    let strides = k.desc().strides().iter().map(|stride| -stride).collect::<Vec<_>>();
    let strides = [strides[0], strides[1], strides[2], 1];
    let k = Tensor::strided(&backwards, backwards.len() - D, k.desc().shape(), &strides).unwrap();
    let out = TensorMut::new(&mut o, &[B, SQ, HQ, DV]).unwrap().transposed(1, 2).unwrap();
    let plan = Plan::new(&Problem::new(q, k, v, &out), &PlanOptions::new()).unwrap();
    plan.run(Arguments::new(q, k, v, out), &mut Workspace::new()).unwrap();

    let repeated = (0..B * HQ).flat_map(|n| &one_head[n / HQ * SQ * D..][..SQ * D]);
    let data = Data { q: repeated.copied().collect(), ..data };
    let (wanted, _) = expected(&data, |_, dot| Some(SCALE * dot), |_| 1.0, None);
    for b in 0..B {
        for h in 0..HQ {
            for i in 0..SQ {
                let found = &o[((b * SQ + i) * HQ + h) * DV..][..DV];
                assert_close(found, &wanted[((b * HQ + h) * SQ + i) * DV..][..DV], O_GATE);
            }
        }
    }
}

/// Three entries of different lengths, one of them empty.
#[test]
fn packed() {
    let (starts_q, starts_kv) = ([0, 5, 5, 13], [0, 2, 6, 21]);
    let q_data = numbers(1, SQ * HQ * D);
    let (k_data, v_data) = (numbers(2, SKV * HKV * D), numbers(3, SKV * HKV * DV));
    let q = Tensor::new(&q_data, &[SQ, HQ, D]).unwrap();
    let k = Tensor::new(&k_data, &[SKV, HKV, D]).unwrap();
    let v = Tensor::new(&v_data, &[SKV, HKV, DV]).unwrap();
    let (mut o_data, mut lse_data) = (vec![f32::NAN; SQ * HQ * DV], vec![f32::NAN; SQ * HQ]);
    let o = TensorMut::new(&mut o_data, &[SQ, HQ, DV]).unwrap();
    let lse = TensorMut::new(&mut lse_data, &[SQ, HQ]).unwrap();
    let problem = Problem::new(q, k, v, &o).lse(&lse).packed(&starts_q, &starts_kv);
    let plan = Plan::new(&problem.max_seqlens(8, 15), &PlanOptions::new()).unwrap();
    let arguments = Arguments::new(q, k, v, o).lse(lse).packed(&starts_q, &starts_kv);
    plan.run(arguments, &mut Workspace::new()).unwrap();
    for b in 0..3 {
        let (first, last) = (starts_kv[b] as usize, starts_kv[b + 1] as usize);
        for i in starts_q[b] as usize..starts_q[b + 1] as usize {
            for h in 0..HQ {
                let place = |j| (first + j) * HKV + h / (HQ / HKV);
                let (wanted, log) = row(
                    last - first,
                    &q_data[(i * HQ + h) * D..][..D],
                    |j| k_data[place(j) * D..][..D].to_vec(),
                    |j| v_data[place(j) * DV..][..DV].to_vec(),
                    |_, dot| Some(SCALE * dot),
                    |_| 1.0,
                    None,
                );
                assert_close(&o_data[(i * HQ + h) * DV..][..DV], &wanted, O_GATE);
                assert_close(&lse_data[i * HQ + h..][..1], &[log], LSE_GATE);
            }
        }
    }

    // Invalid lengths are found before anything is read with them.
    let o = TensorMut::new(&mut o_data, &[SQ, HQ, DV]).unwrap();
    let mut lse_data = vec![f32::NAN; SQ * HQ];
    let lse = TensorMut::new(&mut lse_data, &[SQ, HQ]).unwrap();
    let arguments = Arguments::new(q, k, v, o).lse(lse).packed(&[0, 5, 5, 1 << 30], &starts_kv);
    let error = plan.run(arguments, &mut Workspace::new()).unwrap_err();
    assert!(error.to_string().starts_with("cu_seqlens_q: entry 3 is 1073741824"), "{}", error);
    assert!(lse_data.iter().all(|x| x.is_nan()));
}

/// Each narrow type: inputs that are exact in it, an output of its own type.
#[test]
fn narrow_types() {
    // The error that an element may have: half a step of its type, and the kernel's error.
    check_type(F16::from_f32, F16::to_f32, 1e-3);
    check_type(Bf16::from_f32, Bf16::to_f32, 8e-3);
    check_type(F8E4M3::from_f32, F8E4M3::to_f32, 6e-2);
    check_type(F8E5M2::from_f32, F8E5M2::to_f32, 1.3e-1);
}

fn check_type<T: OutputElement>(narrow: fn(f32) -> T, wide: fn(T) -> f32, gate: f64) {
    let narrowed = |data: Vec<f32>| data.into_iter().map(narrow).collect::<Vec<T>>();
    let data = Data::new();
    let (q, k, v) = (narrowed(data.q), narrowed(data.k), narrowed(data.v));
    let mut o_data = vec![narrow(f32::NAN); B * HQ * SQ * DV];
    {
        let q = Tensor::new(&q, &[B, HQ, SQ, D]).unwrap();
        let k = Tensor::new(&k, &[B, HKV, SKV, D]).unwrap();
        let v = Tensor::new(&v, &[B, HKV, SKV, DV]).unwrap();
        let o = TensorMut::new(&mut o_data, &[B, HQ, SQ, DV]).unwrap();
        let plan = Plan::new(&Problem::new(q, k, v, &o), &PlanOptions::new()).unwrap();
        plan.run(Arguments::new(q, k, v, o), &mut Workspace::new()).unwrap();
    }
    let widened = |data: Vec<T>| data.into_iter().map(wide).collect::<Vec<f32>>();
    let data = Data { q: widened(q), k: widened(k), v: widened(v) };
    let (wanted, _) = expected(&data, |_, dot| Some(SCALE * dot), |_| 1.0, None);
    assert_close(&widened(o_data), &wanted, gate);
}

/// fp8 scales: one for all queries, one for every 8 keys.
#[test]
fn fp8_scales() {
    let data = Data::new();
    let fp8 = |data: &[f32]| data.iter().map(|&x| F8E4M3::from_f32(x)).collect::<Vec<_>>();
    let wide = |data: &[F8E4M3]| data.iter().map(|x| x.to_f32()).collect::<Vec<_>>();
    let (q_data, k_data, v_data) = (fp8(&data.q), fp8(&data.k), fp8(&data.v));
    let (q_scales, blocks) = ([0.5f32], SKV / 8 + 1);
    let (k_scales, v_scales) = (numbers(9, HKV * blocks), numbers(10, HKV * blocks));
    let q_scale = Tensor::new(&q_scales, &[1, 1]).unwrap();
    let k_scale = Tensor::new(&k_scales, &[1, HKV, blocks]).unwrap();
    let v_scale = Tensor::new(&v_scales, &[1, HKV, blocks]).unwrap();
    let q = Tensor::new(&q_data, &[B, HQ, SQ, D]).unwrap();
    let k = Tensor::new(&k_data, &[B, HKV, SKV, D]).unwrap();
    let v = Tensor::new(&v_data, &[B, HKV, SKV, DV]).unwrap();
    let mut o_data = vec![f32::NAN; B * HQ * SQ * DV];
    let o = TensorMut::new(&mut o_data, &[B, HQ, SQ, DV]).unwrap();
    let problem = Problem::new(q, k, v, &o).q_scale(q_scale).k_scale(k_scale).v_scale(v_scale);
    let plan = Plan::new(&problem.kv_scale_block(8), &PlanOptions::new()).unwrap();
    let arguments = Arguments::new(q, k, v, o).q_scale(q_scale).k_scale(k_scale).v_scale(v_scale);
    plan.run(arguments, &mut Workspace::new()).unwrap();

    let scaled = |data: &[F8E4M3], scales: &[f32], width: usize| {
        let mut wide = wide(data);
        for (row, values) in wide.chunks_mut(width).enumerate() {
            let (head, key) = (row / SKV % HKV, row % SKV);
            values.iter_mut().for_each(|x| *x *= scales[head * blocks + key / 8]);
        }
        wide
    };
    let q = wide(&q_data).iter().map(|x| x * q_scales[0]).collect();
    let (k, v) = (scaled(&k_data, &k_scales, D), scaled(&v_data, &v_scales, DV));
    let (wanted, _) = expected(&Data { q, k, v }, |_, dot| Some(SCALE * dot), |_| 1.0, None);
    assert_close(&o_data, &wanted, 6e-2);
}

/// O in fp8 is divided by a scale; the largest values bound it and the probabilities.
#[test]
fn fp8_output_and_largest_values() {
    let data = Data::new();
    let (q, k, v) = data.views();
    let scales = [0.0625f32, 0.125, 0.5, 0.001];
    let o_scale = Tensor::new(&scales, &[1, HQ]).unwrap();
    let mut o_data = vec![F8E4M3(0x7f); B * HQ * SQ * DV];
    let (mut amax_o, mut amax_s, mut max_logit) = ([f32::NAN; B * HQ], [f32::NAN], [f32::NAN]);
    let o = TensorMut::new(&mut o_data, &[B, HQ, SQ, DV]).unwrap();
    let largest_o = TensorMut::new(&mut amax_o, &[B, HQ]).unwrap();
    let largest_s = TensorMut::new(&mut amax_s, &[1, 1]).unwrap();
    let largest_score = TensorMut::new(&mut max_logit, &[1, 1]).unwrap();
    let problem = Problem::new(q, k, v, &o).o_scale(o_scale).amax_o(&largest_o).amax_s(&largest_s);
    let problem = problem.max_logit(&largest_score);
    let plan = Plan::new(&problem, &PlanOptions::new()).unwrap();
    let arguments = Arguments::new(q, k, v, o).o_scale(o_scale).max_logit(largest_score);
    plan.run(arguments.amax_o(largest_o).amax_s(largest_s), &mut Workspace::new()).unwrap();

    let score = std::cell::Cell::new(f64::NEG_INFINITY);
    let seen = |_, dot| {
        score.set(score.get().max(SCALE * dot));
        Some(SCALE * dot)
    };
    let (wanted, _) = expected(&data, seen, |_| 1.0, None);
    assert!((f64::from(max_logit[0]) - score.get()).abs() < 1e-5);
    for (head, wanted) in wanted.chunks(SQ * DV).enumerate() {
        let largest = wanted.iter().fold(0.0f64, |a, x| a.max(x.abs()));
        assert!((f64::from(amax_o[head]) - largest).abs() < 1e-5);
        let scale = scales[head % HQ];
        for (found, wanted) in o_data[head * SQ * DV..].iter().zip(wanted) {
            let quotient = (*wanted as f32 / scale).clamp(-448.0, 448.0);
            let error = (found.to_f32() - quotient).abs();
            assert!(error <= quotient.abs() / 15.0 + 0.001, "{:?} for {}", found, quotient);
        }
    }
    assert!(amax_s[0] > 1.0 / SKV as f32 && amax_s[0] < 1.0);
    let (mut o_data, mut one) = (vec![F8E4M3(0); B * HQ * SQ * DV], [0.0f32]);
    let o = TensorMut::new(&mut o_data, &[B, HQ, SQ, DV]).unwrap();
    let arguments = Arguments::new(q, k, v, o).o_scale(o_scale);
    let arguments = arguments.amax_o(TensorMut::new(&mut one, &[1, 1]).unwrap());
    let error = plan.run(arguments, &mut Workspace::new()).unwrap_err();
    assert!(error.to_string().starts_with("amax_o: is "), "{}", error);
}

/// The reference computes in fp64, and can return fp64.
#[test]
fn a_kernel_by_name() {
    let data = Data::new();
    let (q, k, v) = data.views();
    let mut o_data = vec![f64::NAN; B * HQ * SQ * DV];
    let o = TensorMut::new(&mut o_data, &[B, HQ, SQ, DV]).unwrap();
    let plan = Plan::new(&Problem::new(q, k, v, &o), &PlanOptions::new().kernel("reference"));
    let plan = plan.unwrap();
    assert_eq!(plan.kernel(), "reference");
    plan.run(Arguments::new(q, k, v, o), &mut Workspace::new()).unwrap();
    let (wanted, _) = expected(&data, |_, dot| Some(SCALE * dot), |_| 1.0, None);
    for (found, wanted) in o_data.iter().zip(&wanted) {
        assert!((found - wanted).abs() < 1e-12, "is {}, wanted {}", found, wanted);
    }
}

/// One plan on several threads, each with its own output and workspace.
#[test]
fn threads_share_a_plan() {
    let data = Data::new();
    let (q, k, v) = data.views();
    let o_desc = TensorDesc::contiguous(DType::F32, &[B, HQ, SQ, DV]).unwrap();
    let options = PlanOptions::new().threads(1).batch_invariant(true);
    let plan = Plan::new(&Problem::new(q, k, v, o_desc).causal(true), &options).unwrap();
    let results: Vec<Vec<f32>> = std::thread::scope(|scope| {
        let compute = || {
            let (mut o, mut workspace) = (vec![f32::NAN; B * HQ * SQ * DV], Workspace::new());
            for _ in 0..50 {
                let mut view = TensorMut::new(&mut o, &[B, HQ, SQ, DV]).unwrap();
                plan.run(Arguments::new(q, k, v, view.reborrow()), &mut workspace).unwrap();
            }
            o
        };
        let threads = [(); 4].map(|_| scope.spawn(compute));
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let score = |[_, _, i, j]: [usize; 4], dot: f64| (j <= i + SKV - SQ).then_some(SCALE * dot);
    let (wanted, _) = expected(&data, score, |_| 1.0, None);
    for result in &results {
        assert_close(result, &wanted, O_GATE);
        assert_eq!(result, &results[0]); // the same bits
    }
}

/// A tensor without elements is legal: here no keys, so that every row is 0.
#[test]
fn no_keys() {
    let q_data = numbers(1, HQ * SQ * D);
    let none: [f32; 0] = [];
    let q = Tensor::new(&q_data, &[1, HQ, SQ, D]).unwrap();
    let k = Tensor::new(&none, &[1, HKV, 0, D]).unwrap();
    let v = Tensor::new(&none, &[1, HKV, 0, DV]).unwrap();
    let mut o_data = vec![f32::NAN; HQ * SQ * DV];
    let o = TensorMut::new(&mut o_data, &[1, HQ, SQ, DV]).unwrap();
    let plan = Plan::new(&Problem::new(q, k, v, &o), &PlanOptions::new()).unwrap();
    plan.run(Arguments::new(q, k, v, o), &mut Workspace::new()).unwrap();
    assert!(o_data.iter().all(|&x| x == 0.0));
}
