//! Any rate to 16 kHz: windowed-sinc, polyphase.
//!
//! Written by hand and not with the `rubato` crate, which is made for real time: its chunks have a delay to cut off and its own
//! buffer types, and using it takes as many lines as this filter, which has no delay and gives exactly round(n · 16000 / rate)
//! samples.
//!
//! Output k lies at input time k · rate / 16000. The fraction picks a row of the table, the row is a low-pass filter
//! shifted by that fraction. All usual rates have few distinct fractions and are exact; a rate such as 44,101 Hz has
//! 16,000 and blends two neighbouring rows of 1,024, an error below 10⁻⁵.

use super::RATE;

/// A limit, because the filters, and so the table, grow with the rate: 13 MB at this one.
pub(super) const MAX_RATE: u32 = 384_000;

/// Zero crossings of the sinc on each side.
const CROSSINGS: f64 = 64.0;
/// Kaiser's window for a stop band 90 dB down.
const BETA: f64 = 9.0;
/// Where the filter halves, as a part of the lower Nyquist frequency: the transition ends at about 1.
const CUTOFF: f64 = 0.955;
const MAX_PHASES: u64 = 1024;
const LANES: usize = 16;

/// Resamples a stream: push pieces, then finish.
pub(super) struct Resampler {
    rate: u64,
    phases: u64,
    /// [phases + 1, taps]
    table: Vec<f32>,
    taps: usize,
    /// Input that outputs still need, after `half - 1` zeros for the time before the recording.
    held: Vec<f32>,
    /// Samples that were removed from `held`.
    dropped: u64,
    given: u64,
    made: u64,
}

impl Resampler {
    /// From `rate`, which is 1 to [`MAX_RATE`].
    pub(super) fn new(rate: u32) -> Self {
        let rate = u64::from(rate.clamp(1, MAX_RATE));
        let phases = (u64::from(RATE) / gcd(rate, u64::from(RATE))).min(MAX_PHASES);
        let (table, taps) = table(rate, phases);
        let held = vec![0.0; taps / 2 - 1];
        Self { rate, phases, table, taps, held, dropped: 0, given: 0, made: 0 }
    }

    /// Takes more input and appends what can be made of it.
    pub(super) fn push(&mut self, input: &[f32], out: &mut Vec<f32>) {
        self.given += input.len() as u64;
        if self.rate == u64::from(RATE) {
            out.extend_from_slice(input);
            return;
        }
        self.held.extend_from_slice(input);
        self.make(u64::MAX, out);
    }

    /// Appends the rest: after the recording there is silence.
    pub(super) fn finish(mut self, out: &mut Vec<f32>) {
        if self.rate != u64::from(RATE) {
            let total = (self.given * u64::from(RATE) + self.rate / 2) / self.rate;
            // The last output may round to just after the last input.
            let reach = self.taps + (self.rate / u64::from(RATE)) as usize + 1;
            self.held.resize(self.held.len() + reach, 0.0);
            self.make(total, out);
        }
    }

    fn make(&mut self, total: u64, out: &mut Vec<f32>) {
        let rate = u64::from(RATE);
        while self.made < total {
            let at = self.made * self.rate;
            let start = (at / rate - self.dropped) as usize;
            let Some(input) = self.held.get(start..start + self.taps) else { break };
            let (row, rest) = ((at % rate) * self.phases / rate, (at % rate) * self.phases % rate);
            let mut value = dot(input, self.row(row));
            if rest > 0 {
                value += (dot(input, self.row(row + 1)) - value) * (rest as f32 / rate as f32);
            }
            out.push(value);
            self.made += 1;
        }
        let next = (self.made * self.rate / rate - self.dropped) as usize;
        let gone = next.min(self.held.len());
        self.held.drain(..gone);
        self.dropped += gone as u64;
    }

    fn row(&self, phase: u64) -> &[f32] {
        let start = phase as usize * self.taps;
        self.table.get(start..start + self.taps).unwrap_or_default()
    }
}

/// One filter for each phase, and one more so that the last phase has a neighbour; and the length of a filter.
fn table(rate: u64, phases: u64) -> (Vec<f32>, usize) {
    // When the rate is reduced, the filter must end at the new Nyquist frequency, so it is longer.
    let scale = (f64::from(RATE) / rate as f64).min(1.0);
    let reach = CROSSINGS / scale;
    let half = reach.ceil() as usize;
    let (mut table, mut row) = (Vec::with_capacity((phases as usize + 1) * 2 * half), Vec::new());
    for phase in 0..=phases {
        let fraction = phase as f64 / phases as f64;
        row.clear();
        row.extend((0..2 * half).map(|i| {
            let t = (i as f64 + 1.0) - half as f64 - fraction;
            sinc(CUTOFF * scale * t) * kaiser(t / reach)
        }));
        // Dividing by the sum keeps a constant signal constant to the last digit in every phase.
        let sum: f64 = row.iter().sum();
        table.extend(row.iter().map(|x| (x / sum) as f32));
    }
    (table, 2 * half)
}

fn sinc(x: f64) -> f64 {
    let x = std::f64::consts::PI * x;
    if x.abs() < 1e-9 { 1.0 } else { x.sin() / x }
}

/// Kaiser's window on [-1, 1], up to a factor.
fn kaiser(x: f64) -> f64 {
    let inside = 1.0 - x * x;
    if inside <= 0.0 { 0.0 } else { bessel(BETA * inside.sqrt()) }
}

/// The modified Bessel function of order 0, by its power series.
fn bessel(x: f64) -> f64 {
    let (mut sum, mut term, mut k) = (1.0, 1.0, 1.0);
    while term > 1e-10 * sum {
        term *= (x / (2.0 * k)) * (x / (2.0 * k));
        sum += term;
        k += 1.0;
    }
    sum
}

/// Sums in lanes, which the compiler can keep in one register; it may not reorder a single running sum.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let ((xs, x_rest), (ys, y_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let mut lanes = [0.0f32; LANES];
    for (x, y) in xs.iter().zip(ys) {
        // A counted loop: an unoptimised build would call a function for every step of a range.
        let mut lane = 0;
        while lane < LANES {
            lanes[lane] += x[lane] * y[lane];
            lane += 1;
        }
    }
    let rest: f32 = x_rest.iter().zip(y_rest).map(|(x, y)| x * y).sum();
    lanes.iter().sum::<f32>() + rest
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::f64::consts::TAU;

    fn sine(hertz: f64, rate: u32, seconds: f64) -> Vec<f32> {
        let n = (seconds * f64::from(rate)) as usize;
        (0..n).map(|i| (0.5 * (TAU * hertz * i as f64 / f64::from(rate)).sin()) as f32).collect()
    }

    fn resample(input: &[f32], rate: u32, piece: usize) -> Vec<f32> {
        let (mut resampler, mut out) = (Resampler::new(rate), Vec::new());
        input.chunks(piece).for_each(|some| resampler.push(some, &mut out));
        resampler.finish(&mut out);
        out
    }

    /// The largest absolute value away from the edges, where the filter rings.
    fn peak(values: impl ExactSizeIterator<Item = f32>) -> f32 {
        let n = values.len();
        values.skip(300).take(n - 600).fold(0.0, |top, x| top.max(x.abs()))
    }

    #[test]
    fn a_tone_stays_itself_at_every_rate() {
        for rate in [8_000, 11_025, 16_000, 22_050, 44_100, 44_101, 48_000, 96_000, 192_000] {
            for hertz in [440.0, 3_000.0] {
                let out = resample(&sine(hertz, rate, 0.5), rate, 1152);
                let expected = sine(hertz, RATE, 0.5);
                let off = peak(out.iter().zip(&expected).map(|(x, y)| x - y));
                println!("{hertz} Hz at {rate}: off by {off:e}");
                assert!(off < 1e-5, "{hertz} Hz at {rate}: {off}");
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_not_folded_back() {
        for (rate, hertz) in [(44_100, 8_100.0), (44_100, 12_000.0), (48_000, 15_560.0), (44_101, 20_000.0)] {
            let top = peak(resample(&sine(hertz, rate, 0.5), rate, 1152).into_iter());
            let decibels = 20.0 * (f64::from(top) / 0.5).log10();
            println!("{hertz} Hz at {rate}: {decibels:.1} dB");
            assert!(decibels < -80.0, "{hertz} Hz at {rate}: {decibels} dB");
        }
        // When the rate is raised, mirror images of the input above its Nyquist frequency must not appear.
        let out = resample(&sine(3_000.0, 8_000, 0.5), 8_000, 100);
        let off = peak(out.iter().zip(&sine(3_000.0, RATE, 0.5)).map(|(x, y)| x - y));
        assert!(off < 5e-5, "{off}");
    }

    #[test]
    fn lengths_are_rounded_and_pieces_do_not_matter() {
        for rate in [1, 7, 999, 8_000, 15_999, 16_000, 22_050, 44_100, 383_999] {
            for n in [1usize, 2, 3, 100, 2_001] {
                if rate < 100 && n > 100 {
                    continue;
                }
                let input: Vec<f32> = (0..n).map(|i| (i as f32 * 0.7).sin()).collect();
                let whole = resample(&input, rate, n);
                let expected = (n as f64 * f64::from(RATE) / f64::from(rate)).round() as usize;
                assert_eq!(whole.len(), expected, "{n} at {rate}");
                assert_eq!(whole, resample(&input, rate, 1), "{n} at {rate}");
            }
        }
    }
}
