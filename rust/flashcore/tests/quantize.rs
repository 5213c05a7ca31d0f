//! Quantisation: the mean, and refusals.

use flashcore::{Device, ErrorKind, PlanOptions, Quantize, Tensor, TensorMut, F8E4M3};

const SHAPE: [usize; 4] = [1, 2, 24, 16];

fn numbers(seed: u32) -> Vec<f32> {
    let count = SHAPE.iter().product::<usize>() as u32;
    (0..count).map(|i| ((i * 37 + seed * 11) % 101) as f32 / 25.0 - 2.0).collect()
}

#[test]
fn refuses_in_one_sentence() {
    let x = numbers(0);
    let mut fp8 = vec![F8E4M3::default(); x.len()];
    let mut scale = [0.0f32; 6];
    let error = Quantize::new(
        Tensor::new(&x, &SHAPE).unwrap(),
        TensorMut::new(&mut fp8, &SHAPE).unwrap(),
        TensorMut::new(&mut scale, &[1, 2, 3]).unwrap(),
    )
    .scale_block(12)
    .run(&PlanOptions::new())
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().starts_with("scale: shape is [1, 2, 3], wanted"), "{}", error);
    assert_eq!(scale, [0.0; 6]);
}

#[test]
fn refuses_memory_of_the_host_on_a_gpu() {
    let x = numbers(0);
    let mut fp8 = vec![F8E4M3::default(); x.len()];
    let mut scale = [0.0f32; 2];
    let error = Quantize::new(
        Tensor::new(&x, &SHAPE).unwrap(),
        TensorMut::new(&mut fp8, &SHAPE).unwrap(),
        TensorMut::new(&mut scale, &[1, 2]).unwrap(),
    )
    .run(&PlanOptions::new().device(Device::Cuda(0)))
    .unwrap_err();
    assert!(error.to_string().starts_with("device: is Cuda(0), wanted Cpu"), "{}", error);
}

#[test]
fn subtracts_the_mean() {
    let x: Vec<f32> = numbers(1).iter().map(|one| one + 100.0).collect();
    let mut fp8 = vec![F8E4M3::default(); x.len()];
    let (mut scale, mut mean) = ([0.0f32; 2], [0.0f32; 32]);
    Quantize::new(
        Tensor::new(&x, &SHAPE).unwrap(),
        TensorMut::new(&mut fp8, &SHAPE).unwrap(),
        TensorMut::new(&mut scale, &[1, 2, 1]).unwrap(),
    )
    .mean(TensorMut::new(&mut mean, &[1, 2, 16]).unwrap())
    .run(&PlanOptions::new())
    .unwrap();
    assert!(mean.iter().all(|one| (one - 100.0).abs() < 2.0));
    assert!(scale.iter().all(|one| *one < 5.0 / 448.0));
}
