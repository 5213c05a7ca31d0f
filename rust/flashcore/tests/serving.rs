//! Caches, merge and append: compares runs over pages with the same keys in one piece.

use flashcore::{
    Append, Arguments, Merge, Plan, PlanOptions, Problem, Step, Tensor, TensorMut, Workspace,
};

const HEADS: usize = 2;
const WIDTH: usize = 8;
const PAGE: usize = 4;

/// Distinct numbers, the same in each run.
fn numbers(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(12345);
    (0..count)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}

/// Two sequences with 7 and 3 rows in pages, and the same rows, padded, in one piece.
struct Cache {
    table: [i32; 4],
    lengths: [i32; 2],
    pages: [Vec<f32>; 2],
    whole: [Vec<f32>; 2],
}

fn cache() -> Cache {
    let (table, lengths) = ([4i32, 1, 2, -9], [7i32, 3]);
    let whole = [numbers(2 * HEADS * 8 * WIDTH, 1), numbers(2 * HEADS * 8 * WIDTH, 2)];
    let mut pages =
        [vec![f32::NAN; 5 * HEADS * PAGE * WIDTH], vec![f32::NAN; 5 * HEADS * PAGE * WIDTH]];
    for (from, to) in whole.iter().zip(&mut pages) {
        for b in 0..2 {
            for row in 0..lengths[b] as usize {
                let page = table[b * 2 + row / PAGE] as usize;
                for head in 0..HEADS {
                    for d in 0..WIDTH {
                        to[((page * HEADS + head) * PAGE + row % PAGE) * WIDTH + d] =
                            from[((b * HEADS + head) * 8 + row) * WIDTH + d];
                    }
                }
            }
        }
    }
    Cache { table, lengths, pages, whole }
}

fn run(problem: &Problem, arguments: Arguments<'_>) -> flashcore::Result<()> {
    Plan::new(problem, &PlanOptions::new())?.run(arguments, &mut Workspace::new())
}

#[test]
fn pages_and_lists_hold_the_keys_of_one_piece() -> flashcore::Result<()> {
    let one = cache();
    let queries = numbers(2 * 4 * WIDTH, 3);
    let (mut wanted, mut paged, mut listed) =
        (vec![0f32; queries.len()], vec![0f32; queries.len()], vec![0f32; queries.len()]);
    let q = Tensor::new(&queries, &[2, 4, 1, WIDTH])?;
    let o = TensorMut::new(&mut wanted, &[2, 4, 1, WIDTH])?;
    let k = Tensor::new(&one.whole[0], &[2, HEADS, 8, WIDTH])?;
    let v = Tensor::new(&one.whole[1], &[2, HEADS, 8, WIDTH])?;
    let problem = Problem::new(q, k, v, &o).seqlens_kv(&one.lengths);
    run(&problem, Arguments::new(q, k, v, o).seqlens_kv(&one.lengths))?;

    let k = Tensor::new(&one.pages[0], &[5, HEADS, PAGE, WIDTH])?;
    let v = Tensor::new(&one.pages[1], &[5, HEADS, PAGE, WIDTH])?;
    let table = Tensor::new(&one.table, &[2, 2])?;
    let o = TensorMut::new(&mut paged, &[2, 4, 1, WIDTH])?;
    let problem = Problem::new(q, k, v, &o).page_table(table).seqlens_kv(&one.lengths);
    run(&problem, Arguments::new(q, k, v, o).page_table(table).seqlens_kv(&one.lengths))?;
    assert_eq!(paged, wanted);

    let (indptr, indices, last) = ([0i32, 2, 3], [4i32, 1, 2], [3i32, 3]);
    let o = TensorMut::new(&mut listed, &[2, 4, 1, WIDTH])?;
    let problem = Problem::new(q, k, v, &o).page_list(&indptr, &indices).kv_last_page_len(&last);
    let data = Arguments::new(q, k, v, o).page_list(&indptr, &indices).kv_last_page_len(&last);
    run(&problem, data)?;
    assert_eq!(listed, wanted);
    Ok(())
}

#[test]
fn numbers_of_pages_out_of_range_are_refused_or_clamped() -> flashcore::Result<()> {
    let one = cache();
    let queries = numbers(2 * 4 * WIDTH, 3);
    let mut result = vec![0f32; queries.len()];
    let wrong = [4i32, 5, 2, 0];
    let q = Tensor::new(&queries, &[2, 4, 1, WIDTH])?;
    let k = Tensor::new(&one.pages[0], &[5, HEADS, PAGE, WIDTH])?;
    let v = Tensor::new(&one.pages[1], &[5, HEADS, PAGE, WIDTH])?;
    let table = Tensor::new(&wrong, &[2, 2])?;
    let mut o = TensorMut::new(&mut result, &[2, 4, 1, WIDTH])?;
    let problem = Problem::new(q, k, v, &o).page_table(table).seqlens_kv(&one.lengths);
    let data = Arguments::new(q, k, v, o.reborrow()).page_table(table).seqlens_kv(&one.lengths);
    let error = run(&problem, data).unwrap_err().to_string();
    assert_eq!(error, "page_table: page 1 of sequence 0 is 5, wanted 0 to 4");

    let mut status = 0;
    let problem = problem.page_status();
    let data = Arguments::new(q, k, v, o.reborrow())
        .page_table(table)
        .seqlens_kv(&one.lengths)
        .page_status(&mut status);
    run(&problem, data)?;
    assert_eq!(status, 1);
    let data = Arguments::new(q, k, v, o).page_table(table).seqlens_kv(&one.lengths);
    assert!(run(&problem, data).unwrap_err().to_string().starts_with("page_status: is missing"));
    Ok(())
}

#[test]
fn a_step_is_append_and_attention() -> flashcore::Result<()> {
    let mut apart = cache();
    let mut together = cache();
    let (new_k, new_v) = (numbers(2 * HEADS * WIDTH, 4), numbers(2 * HEADS * WIDTH, 5));
    let queries = numbers(2 * 4 * WIDTH, 6);
    let after: Vec<i32> = apart.lengths.iter().map(|rows| rows + 1).collect();
    let (mut turned, mut wanted) = (vec![0f32; queries.len()], vec![0f32; queries.len()]);
    let (mut turned_too, mut result) = (turned.clone(), wanted.clone());
    let rows = [2, HEADS, 1, WIDTH];
    let pages = [5, HEADS, PAGE, WIDTH];
    let shape = [2, 4, 1, WIDTH];
    let (k_new, v_new) = (Tensor::new(&new_k, &rows)?, Tensor::new(&new_v, &rows)?);
    let q = Tensor::new(&queries, &shape)?;
    let table = Tensor::new(&apart.table, &[2, 2])?;

    let [keys, values] = &mut apart.pages;
    Append::new(
        k_new,
        v_new,
        TensorMut::new(keys, &pages)?,
        TensorMut::new(values, &pages)?,
        &apart.lengths,
    )
    .page_table(table)
    .rope(100.0, 1.0)
    .queries(q, TensorMut::new(&mut turned, &shape)?)
    .run(&PlanOptions::new())?;
    let (k, v) = (Tensor::new(keys, &pages)?, Tensor::new(values, &pages)?);
    let q_turned = Tensor::new(&turned, &shape)?;
    let o = TensorMut::new(&mut wanted, &shape)?;
    let problem = Problem::new(q, k, v, &o).page_table(table).seqlens_kv(&after);
    let plan = Plan::new(&problem, &PlanOptions::new())?;
    let data = Arguments::new(q_turned, k, v, o).page_table(table).seqlens_kv(&after);
    plan.run(data, &mut Workspace::new())?;

    let [keys, values] = &mut together.pages;
    let append = Append::new(
        k_new,
        v_new,
        TensorMut::new(keys, &pages)?,
        TensorMut::new(values, &pages)?,
        &together.lengths,
    )
    .page_table(table)
    .rope(100.0, 1.0)
    .queries(q, TensorMut::new(&mut turned_too, &shape)?);
    let step = Step::new(append, TensorMut::new(&mut result, &shape)?)
        .page_table(table)
        .seqlens_kv(&after);
    plan.run_step(step, &PlanOptions::new(), &mut Workspace::new())?;
    assert_eq!(result, wanted);
    assert_eq!(turned_too, turned);
    let bits = |data: &[f32]| data.iter().map(|x| x.to_bits()).collect::<Vec<u32>>();
    assert_eq!(bits(&together.pages[0]), bits(&apart.pages[0]));
    assert_eq!(bits(&together.pages[1]), bits(&apart.pages[1]));
    Ok(())
}

#[test]
fn tree_masks_are_masks_of_pairs() -> flashcore::Result<()> {
    let one = cache();
    let queries = numbers(2 * 4 * 3 * WIDTH, 7);
    // Token 1 and token 2 are children of token 0.
    let bits = [0b001i32, 0b011, 0b101];
    let lengths = [8i32, 8];
    let mut pairs = [true; 3 * 8];
    for i in 0..3 {
        for t in 0..3 {
            pairs[i * 8 + 5 + t] = bits[i] >> t & 1 == 1;
        }
    }
    let (mut wanted, mut result) = (vec![0f32; queries.len()], vec![0f32; queries.len()]);
    let shape = [2, 4, 3, WIDTH];
    let q = Tensor::new(&queries, &shape)?;
    let k = Tensor::new(&one.whole[0], &[2, HEADS, 8, WIDTH])?;
    let v = Tensor::new(&one.whole[1], &[2, HEADS, 8, WIDTH])?;
    let o = TensorMut::new(&mut wanted, &shape)?;
    let mask = Tensor::new(&pairs, &[1, 1, 3, 8])?;
    let problem = Problem::new(q, k, v, &o).mask(mask).seqlens_kv(&lengths);
    run(&problem, Arguments::new(q, k, v, o).mask(mask).seqlens_kv(&lengths))?;
    let o = TensorMut::new(&mut result, &shape)?;
    let tree = Tensor::new(&bits, &[1, 3, 1])?;
    let problem = Problem::new(q, k, v, &o).tree_mask(tree).seqlens_kv(&lengths);
    run(&problem, Arguments::new(q, k, v, o).tree_mask(tree).seqlens_kv(&lengths))?;
    assert_eq!(result, wanted);
    Ok(())
}

#[test]
fn halves_merged_are_the_whole() -> flashcore::Result<()> {
    let (queries, keys, values) =
        (numbers(2 * WIDTH, 8), numbers(2 * 20 * WIDTH, 9), numbers(2 * 20 * WIDTH, 10));
    let shape = [1, 2, 1, WIDTH];
    let q = Tensor::new(&queries, &shape)?;
    let mut results = Vec::new();
    for (first, count) in [(0, 20), (0, 13), (13, 7)] {
        let strides = [0, (20 * WIDTH) as isize, WIDTH as isize, 1];
        let part = |data| Tensor::strided(data, first * WIDTH, &[1, 2, count, WIDTH], &strides);
        let (k, v) = (part(&keys)?, part(&values)?);
        let (mut o, mut lse) = (vec![0f32; 2 * WIDTH], vec![0f32; 2]);
        let out = TensorMut::new(&mut o, &shape)?;
        let logs = TensorMut::new(&mut lse, &[1, 2, 1])?;
        let problem = Problem::new(q, k, v, &out).lse(&logs);
        run(&problem, Arguments::new(q, k, v, out).lse(logs))?;
        results.push((o, lse));
    }
    let (mut o, mut lse) = (vec![0f32; 2 * WIDTH], vec![0f32; 2]);
    let rows = |data| Tensor::new(data, &shape);
    let logs = |data| Tensor::new(data, &[1, 2, 1]);
    let parts = Merge::new(
        rows(&results[1].0)?,
        logs(&results[1].1)?,
        rows(&results[2].0)?,
        logs(&results[2].1)?,
    );
    let out_lse = TensorMut::new(&mut lse, &[1, 2, 1])?;
    parts.run(TensorMut::new(&mut o, &shape)?, Some(out_lse), &PlanOptions::new())?;
    for (got, wanted) in o.iter().chain(&lse).zip(results[0].0.iter().chain(&results[0].1)) {
        assert!((got - wanted).abs() < 2e-6, "{} {}", got, wanted);
    }
    let error = parts
        .run(TensorMut::new(&mut o, &[1, 2, WIDTH, 1])?, None, &PlanOptions::new())
        .unwrap_err();
    assert!(error.to_string().starts_with("o: shape is"), "{}", error);
    Ok(())
}

#[test]
fn a_refused_step_writes_nothing() -> flashcore::Result<()> {
    let mut one = cache();
    let kept = one.pages[0].clone();
    let new = numbers(2 * HEADS * WIDTH, 4);
    let queries = numbers(2 * 4 * WIDTH, 6);
    let mut result = vec![0f32; queries.len()];
    let (rows, pages, shape) = ([2, HEADS, 1, WIDTH], [5, HEADS, PAGE, WIDTH], [2, 4, 1, WIDTH]);
    let q = Tensor::new(&queries, &shape)?;
    let table = Tensor::new(&one.table, &[2, 2])?;
    let [keys, values] = &mut one.pages;
    let o = TensorMut::new(&mut result, &shape)?;
    let problem = {
        let (k, v) = (Tensor::new(keys, &pages)?, Tensor::new(values, &pages)?);
        Problem::new(q, k, v, &o).page_table(table).seqlens_kv(&one.lengths)
    };
    let new_rows = Tensor::new(&new, &rows)?;
    let append = Append::new(
        new_rows,
        new_rows,
        TensorMut::new(keys, &pages)?,
        TensorMut::new(values, &pages)?,
        &one.lengths,
    )
    .page_table(table);
    let plan = Plan::new(&problem, &PlanOptions::new())?;
    let step = Step::new(append, o).q(q).page_table(table).seqlens_kv(&[9i32, 4]);
    let error = plan.run_step(step, &PlanOptions::new(), &mut Workspace::new()).unwrap_err();
    assert_eq!(error.to_string(), "seqlens_kv: entry 0 is 9, wanted 0 to 8");
    let bits = |data: &[f32]| data.iter().map(|x| x.to_bits()).collect::<Vec<u32>>();
    assert_eq!(bits(keys), bits(&kept));
    Ok(())
}
