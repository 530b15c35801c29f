//! Copies that bypass the caches: captured tensors are not read again soon, and would displace data that is.
#![allow(unsafe_code)] // Stores past the caches are reached through pointers.

/// to = from, for a piece of a large tensor.
#[cfg(target_arch = "x86_64")]
pub(super) fn stream(to: &mut [f32], from: &[f32]) {
    use std::arch::x86_64::{_mm_loadu_ps, _mm_sfence, _mm_stream_ps};
    assert_eq!(to.len(), from.len());
    // Whole cache lines bypass the caches; the rest at both ends does not.
    let head = to.as_ptr().align_offset(64).min(to.len());
    let (head_to, rest_to) = to.split_at_mut(head);
    let (head_from, rest_from) = from.split_at(head);
    head_to.copy_from_slice(head_from);
    let mut lines = rest_to.chunks_exact_mut(16);
    for (to, from) in (&mut lines).zip(rest_from.chunks_exact(16)) {
        for i in (0..16).step_by(4) {
            // SAFETY: both hold 16 numbers, and `to` is on a boundary of 64 bytes; every x86-64 has these instructions.
            unsafe { _mm_stream_ps(to.as_mut_ptr().add(i), _mm_loadu_ps(from.as_ptr().add(i))) };
        }
    }
    let tail = lines.into_remainder();
    tail.copy_from_slice(&rest_from[rest_from.len() - tail.len()..]);
    // SAFETY: every x86-64 has it. Other threads see the values after this thread signals that it is done.
    unsafe { _mm_sfence() };
}

/// to = from
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn stream(to: &mut [f32], from: &[f32]) {
    to.copy_from_slice(from);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_arrives_and_no_other_cell_changes() {
        let from: Vec<f32> = (0..200).map(|i| i as f32).collect();
        for at in 0..20 {
            for len in [0, 1, 15, 16, 17, 31, 64, 150] {
                let mut to = vec![-1.0; 200];
                stream(&mut to[at..at + len], &from[3..3 + len]);
                let expected =
                    |i: usize| if (at..at + len).contains(&i) { (3 + i - at) as f32 } else { -1.0 };
                assert!(to.iter().enumerate().all(|(i, &x)| x == expected(i)), "{len} at {at}");
            }
        }
    }
}
