//! Random problems and arguments through the safe interface, many of them malformed. For any input,
//! a run reads and writes only the elements of its views: buffers are exactly as long as their
//! views reach, so that the address sanitizer sees the first element past an end
//! (scripts/rust_address.sh), and the other elements of an output's buffer keep their value.

use flashcore::{
    Alignment, Arguments, BackwardArguments, BackwardPlan, Bf16, ErrorKind, Gradients,
    OutputElement, Plan, PlanOptions, Problem, Result, Tensor, TensorDesc, TensorMut, Workspace,
    F16, F8E4M3, F8E5M2,
};

struct Random(u64);

impl Random {
    /// A number below `bound`.
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % bound
    }

    /// True once in `times`.
    fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// A length from 0 to `length`, and sometimes an invalid one.
    fn length(&mut self, length: usize) -> i32 {
        let wrong = [-1, length as i32 + 1, i32::MAX, i32::MIN];
        if self.once_in(40) {
            wrong[self.below(4)]
        } else {
            self.below(length + 1) as i32
        }
    }
}

/// A buffer, and a tensor's layout in it.
struct Laid<T> {
    data: Vec<T>,
    origin: usize,
    shape: Vec<usize>,
    strides: Vec<isize>,
}

impl<T: Copy> Laid<T> {
    /// The last dimension is contiguous, nearly always. The others are in any memory order, with
    /// gaps; inputs may also be broadcast or backwards. No element is past the last one.
    fn new(random: &mut Random, shape: &[usize], input: bool, value: T) -> Laid<T> {
        let rank = shape.len();
        let mut order: Vec<usize> = (0..rank).collect();
        for d in 1..rank.max(2) - 1 {
            order.swap(d, random.below(d + 1));
        }
        let mut strides = vec![0; rank];
        let mut step = 1 + random.below(60) / 59; // the last dimension's
        for &d in order[..rank.max(1) - 1].iter().rev().chain([&(rank - 1)]).rev() {
            strides[d] = step as isize;
            step = step * shape[d].max(1) + if random.once_in(3) { random.below(4) } else { 0 };
        }
        if input {
            for stride in &mut strides[..rank - 1] {
                match random.below(8) {
                    0 => *stride = 0,
                    1 => *stride = -*stride,
                    _ => (),
                }
            }
        }
        let (mut lowest, mut highest) = (0, 0);
        for (&extent, &stride) in shape.iter().zip(&strides) {
            let reach = (extent.max(1) - 1) as isize * stride;
            *(if reach < 0 { &mut lowest } else { &mut highest }) += reach;
        }
        let empty = shape.contains(&0);
        let length = if empty { 0 } else { (highest - lowest + 1) as usize };
        let origin = if empty { 0 } else { -lowest as usize };
        Laid { data: vec![value; length], origin, shape: shape.into(), strides }
    }
}

impl<T: flashcore::Element> Laid<T> {
    fn view(&self) -> Tensor<'_> {
        Tensor::strided(&self.data, self.origin, &self.shape, &self.strides).unwrap()
    }
}

impl<T: OutputElement> Laid<T> {
    fn view_mut(&mut self) -> TensorMut<'_> {
        TensorMut::strided(&mut self.data, self.origin, &self.shape, &self.strides).unwrap()
    }

    /// Returns for each element of the buffer whether it belongs to the tensor.
    fn own(&self) -> Vec<bool> {
        let mut own = vec![false; self.data.len()];
        let count: usize = self.shape.iter().product();
        for number in 0..count {
            let (mut rest, mut place) = (number, self.origin as isize);
            for (&extent, &stride) in self.shape.iter().zip(&self.strides).rev() {
                place += (rest % extent) as isize * stride;
                rest /= extent;
            }
            own[place as usize] = true;
        }
        own
    }
}

#[derive(Default)]
struct Counts {
    planned: usize,
    ran: usize,
    refused: usize,
    backward: usize,
}

/// One problem with Q, K, V and O of one type: planned, and run if that works.
fn one_case<T: OutputElement + PartialEq>(
    random: &mut Random,
    number: T,
    untouched: T,
    counts: &mut Counts,
) {
    let packed = random.once_in(3);
    let (batch, heads_kv) = (random.below(4), 1 + random.below(2));
    let heads = heads_kv * (1 + random.below(3));
    let (queries, keys) = (random.below(7), random.below(40));
    let (d, d_v) = (1 + random.below(20), 1 + random.below(20));
    let with_batch = |rest: [usize; 3]| {
        let [heads, rows, width] = rest;
        if packed {
            vec![rows, heads, width]
        } else {
            vec![batch, heads, rows, width]
        }
    };
    let mut shapes = [
        with_batch([heads, queries, d]),
        with_batch([heads_kv, keys, d]),
        with_batch([heads_kv, keys, d_v]),
        with_batch([heads, queries, d_v]),
    ];
    if random.once_in(10) {
        let shape = &mut shapes[random.below(4)];
        let place = random.below(shape.len());
        shape[place] = random.below(9);
    }
    let q = Laid::new(random, &shapes[0], true, number);
    let k = Laid::new(random, &shapes[1], true, number);
    let v = Laid::new(random, &shapes[2], true, number);
    let folded = random.once_in(30); // an output with a layout that only inputs may have
    let mut o = Laid::new(random, &shapes[3], folded, untouched);
    let lse_shape = if packed { vec![queries, heads] } else { vec![batch, heads, queries] };
    let mut lse = Laid::new(random, &lse_shape, false, -7.0f32);
    let with_lse = random.once_in(2);

    let mut starts = |total: usize| {
        let mut starts: Vec<i32> = (0..batch).map(|_| random.length(total)).collect();
        if !random.once_in(20) {
            starts.sort_unstable();
        }
        starts.insert(0, 0);
        starts[batch] = if batch == 0 { 0 } else { total as i32 };
        starts
    };
    let (starts_q, starts_kv) = (starts(queries), starts(keys));
    let lengths_q: Vec<i32> = (0..batch).map(|_| random.length(queries)).collect();
    let lengths_kv: Vec<i32> = (0..batch).map(|_| random.length(keys)).collect();
    let offsets: Vec<i32> = (0..batch).map(|_| random.length(keys)).collect();
    let one_or = |random: &mut Random, extent| if random.once_in(3) { 1 } else { extent };
    let pairs = [batch, heads, queries, keys].map(|extent| one_or(random, extent));
    let mask = Laid::new(random, &pairs, true, true);
    let bias = Laid::new(random, &pairs, true, 0.5f32);
    let sinks = vec![0.5f32; heads];

    let mut chosen: Vec<bool> = (0..7).map(|_| random.once_in(4)).collect();
    // A problem or its arguments, with the chosen inputs.
    macro_rules! with_inputs {
        ($to:expr) => {{
            let mut to = $to;
            if packed {
                to = to.packed(&starts_q, &starts_kv);
            }
            to = if chosen[0] { to.seqlens_q(&lengths_q) } else { to };
            to = if chosen[1] { to.seqlens_kv(&lengths_kv) } else { to };
            to = if chosen[2] { to.causal_offsets(&offsets) } else { to };
            to = if chosen[3] { to.mask(mask.view()) } else { to };
            to = if chosen[4] { to.bias(bias.view()) } else { to };
            if chosen[5] {
                to.sinks(&sinks)
            } else {
                to
            }
        }};
    }
    let mut problem = Problem::new(q.view(), k.view(), v.view(), &o.view_mut());
    if with_lse {
        problem = problem.lse(&lse.view_mut());
    }
    problem = with_inputs!(problem);
    if packed && random.once_in(3) {
        problem = problem.max_seqlens(random.below(queries + 2), random.below(keys + 2));
    }
    problem = if chosen[6] { problem.dropout(0.5) } else { problem };
    problem = problem.causal(random.once_in(2));
    if random.once_in(3) {
        problem = problem.window(Some(random.below(9)), Some(random.below(9)));
    }
    if random.once_in(20) {
        problem = problem.alignment(Alignment::Given(random.below(100) as i64 - 50));
    }
    let kernel = if random.once_in(4) { "reference" } else { "" };
    let options = PlanOptions::new().kernel(kernel).threads(1 + random.below(2));
    let plan = match Plan::new(&problem, &options) {
        Ok(plan) => plan,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{}: {:?}", error, problem);
            return;
        }
    };
    counts.planned += 1;

    let (o_own, lse_own) = (o.own(), lse.own());
    // Sometimes exchanges two inputs, or leaves one out: this is refused unless they look alike.
    let (k_view, v_view) =
        if random.once_in(15) { (v.view(), k.view()) } else { (k.view(), v.view()) };
    let forgets = random.once_in(15);
    chosen[0] &= !forgets;
    let mut run = || -> Result<()> {
        let mut arguments = Arguments::new(q.view(), k_view, v_view, o.view_mut()).dropout(1, 2);
        if with_lse {
            arguments = arguments.lse(lse.view_mut());
        }
        plan.run(with_inputs!(arguments), &mut Workspace::new())
    };
    let outcome = run();
    let o_after =
        (outcome.is_ok() && with_lse && !forgets).then(|| (o.data.clone(), lse.data.clone()));
    match &outcome {
        Ok(()) => counts.ran += 1,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{}: {:?}", error, problem);
            counts.refused += 1;
        }
    }
    for (element, own) in o.data.iter().zip(o_own) {
        let written = *element != untouched;
        assert_eq!(written, own && outcome.is_ok(), "{:?}: {:?}", outcome, problem);
    }
    for (&element, own) in lse.data.iter().zip(lse_own) {
        let written = element != -7.0;
        assert_eq!(written, own && with_lse && outcome.is_ok(), "{:?}: {:?}", outcome, problem);
    }

    let (o_data, lse_data) = match o_after {
        Some(after) => after,
        None => return,
    };
    let (o, lse) = (Laid { data: o_data, ..o }, Laid { data: lse_data, ..lse });
    let d_o = Laid::new(random, &o.shape, true, number);
    let mut outputs = [&q, &k, &v].map(|input| {
        let mut shape = input.shape.clone();
        if random.once_in(30) {
            shape[0] += 1;
        }
        Laid::new(random, &shape, false, untouched)
    });
    let views: Vec<TensorDesc> = outputs.iter_mut().map(|laid| (&laid.view_mut()).into()).collect();
    let gradients = Gradients::new(d_o.view(), views[0], views[1], views[2]);
    let plan = match BackwardPlan::new(&problem, &gradients, &options) {
        Ok(plan) => plan,
        Err(error) => {
            assert_ne!(error.kind(), ErrorKind::Internal, "{}: {:?}", error, problem);
            return;
        }
    };
    let own: Vec<Vec<bool>> = outputs.iter().map(Laid::own).collect();
    let [dq, dk, dv] = &mut outputs;
    let arguments = BackwardArguments::new(q.view(), k.view(), v.view(), o.view(), lse.view())
        .dropout(1, 2)
        .d_o(d_o.view())
        .dq(dq.view_mut())
        .dk(dk.view_mut())
        .dv(dv.view_mut());
    let outcome = plan.run(with_inputs!(arguments), &mut Workspace::new());
    assert!(outcome.is_ok(), "{:?}: {:?}", outcome, problem);
    counts.backward += 1;
    for (output, own) in outputs.iter().zip(own) {
        for (element, own) in output.data.iter().zip(own) {
            assert_eq!(*element != untouched, own, "{:?}", problem);
        }
    }
}

#[test]
fn nothing_reaches_past_a_view() {
    let mut random = Random(0x5eed);
    let mut counts = Counts::default();
    for _ in 0..400 {
        // All values are 0.5, so that no result, their average or 0, equals the marker.
        one_case(&mut random, 0.5f32, -7.0, &mut counts);
        one_case(&mut random, F16::from_f32(0.5), F16::from_f32(-7.0), &mut counts);
        one_case(&mut random, Bf16::from_f32(0.5), Bf16::from_f32(-7.0), &mut counts);
        one_case(&mut random, F8E4M3::from_f32(0.5), F8E4M3::from_f32(-7.0), &mut counts);
        one_case(&mut random, F8E5M2::from_f32(0.5), F8E5M2::from_f32(-7.0), &mut counts);
    }
    let Counts { planned, ran, refused, backward } = counts;
    println!("{} of 2000 problems planned, {} runs, {} runs refused", planned, ran, refused);
    println!("{} backward runs", backward);
    assert!(ran > 500 && refused > 100, "{} runs, {} refused", ran, refused);
    assert!(backward > 200, "{} backward runs", backward);
}
