//! Positions as numbers: sinusoids, and T5's buckets of distances.

use attnscope_graph::{Positions, Stack};

/// The number of a position; none for padding where only tokens are counted.
pub(crate) type Place = Option<usize>;

/// Which token of its row each position is, after `before` tokens. A pad id is not counted even as a token: M2M-100 and fairseq
/// count ids other than the pad id and start with the row after it, so that the offset is the pad id.
pub(crate) fn places<'a>(
    ids: &'a [u32],
    open: impl Iterator<Item = bool> + 'a,
    offset: usize,
    mut before: usize,
) -> impl Iterator<Item = Place> + 'a {
    let pad = offset.checked_sub(1).and_then(|pad| u32::try_from(pad).ok());
    ids.iter().zip(open).map(move |(&id, open)| {
        let counted = open && Some(id) != pad;
        before += usize::from(counted);
        counted.then(|| before - 1)
    })
}

/// The number of a place. A wiring may have any offset; an overflow does not wrap around.
pub(crate) fn position(place: usize, offset: usize) -> usize {
    place.saturating_add(offset)
}

/// The row of a position table: padding has the row before the first position, as in fairseq's tables.
pub(crate) fn table_row(place: Place, offset: usize) -> Option<usize> {
    place.map_or(offset.checked_sub(1), |place| Some(position(place, offset)))
}

/// Component `i` of the sinusoidal vector of `width` for a position.
pub(crate) fn sinusoid(kind: Positions, position: usize, i: usize, width: usize) -> f64 {
    let half = width.div_ceil(2);
    let p = position as f64;
    // Angle of the j-th frequency.
    let published = |j: usize| p / 10000f64.powf(2.0 * j as f64 / width as f64);
    match kind {
        Positions::SinusoidHalves if i < half => published(i).sin(),
        Positions::SinusoidHalves => published(i - half).cos(),
        Positions::SinusoidInterleaved if i.is_multiple_of(2) => published(i / 2).sin(),
        Positions::SinusoidInterleaved => published(i / 2).cos(),
        Positions::SinusoidFairseq => {
            let half = width / 2;
            let step = 10000f64.ln() / (half.max(2) - 1) as f64;
            match i {
                _ if i < half => (p * (-(i as f64) * step).exp()).sin(),
                _ if i < 2 * half => (p * (-((i - half) as f64) * step).exp()).cos(),
                // An odd width leaves one extra column.
                _ => 0.0,
            }
        }
        Positions::Table | Positions::Rotary | Positions::None => 0.0,
    }
}

/// How many rows of a bias table are used: as the graph says, at most those that exist.
pub fn used_buckets(said: usize, rows: usize) -> usize {
    if said == 0 { rows } else { said.min(rows) }
}

/// The row of T5's bias table for a distance: exact for small distances, logarithmic for larger ones, in f32 as in training.
pub fn bucket(stack: Stack, query: usize, key: usize, buckets: usize, max_distance: usize) -> usize {
    let relative = key as i64 - query as i64;
    let (buckets, first, distance) = match stack {
        // The encoder sees both directions: half of the buckets are for later keys.
        Stack::Encoder => {
            let half = buckets / 2;
            (half, if relative > 0 { half } else { 0 }, relative.unsigned_abs() as usize)
        }
        Stack::Decoder => (buckets, 0, (-relative).max(0) as usize),
    };
    let exact = buckets / 2;
    if distance < exact {
        return first + distance;
    }
    let ratio = (distance as f32 / exact as f32).ln() / (max_distance as f32 / exact as f32).ln();
    // If all distances have exact buckets, there are no logarithmic ones, and the ratio is not finite.
    let far = exact.saturating_add((ratio * (buckets - exact) as f32) as usize);
    first + far.min(buckets.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_without_end_does_not_wrap_around() {
        assert_eq!(table_row(Some(1), usize::MAX), Some(usize::MAX));
        assert_eq!((table_row(None, 2), table_row(None, 0)), (Some(1), None));
    }

    #[test]
    fn every_distance_has_a_bucket_of_the_table_whatever_a_config_says() {
        for buckets in 1..=34 {
            for max_distance in 0..=40 {
                for (query, key) in (0..40).flat_map(|q| [(q, 0), (0, q), (39, q)]) {
                    for stack in Stack::ALL {
                        let row = bucket(stack, query, key, buckets, max_distance);
                        assert!(row < buckets, "{stack:?}: {query}, {key}, {buckets}, {max_distance}");
                    }
                }
            }
        }
        // As many exact distances as the largest.
        assert_eq!(bucket(Stack::Decoder, 17, 0, 32, 16), 31);
    }
}
