//! Whisper's log-mel features, as OpenAI's `log_mel_spectrogram` makes them of audio that was padded or cut to the window.
//!
//! Frame t is the power spectrum of the 400 samples around sample 160 · t under a Hann window; the signal is mirrored at
//! both ends; 201 frequencies are summed into mel bands; and the logarithm is kept to 8 decades below the loudest band of
//! the window.

use std::f64::consts::TAU;

use rustfft::num_complex::Complex32;
use rustfft::{Fft, FftPlanner};

use super::RATE;

/// Samples under the window, and points of the transform.
const FFT: usize = 400;
/// Samples from one frame to the next.
pub(super) const HOP: usize = 160;
/// Frequencies from 0 to 8 kHz.
const BINS: usize = FFT / 2 + 1;

/// Log-mel features of 16 kHz samples: [mels, frames], row-major. The audio is padded with silence or cut to
/// `frames` · 160 samples (3,000 frames for Whisper's 30 s); the caller divides longer recordings. `mels` is 80
/// or 128 in the released models and may be anything.
pub fn log_mel(samples: &[f32], mels: usize, frames: usize) -> Vec<f32> {
    let signal = mirrored(samples, frames);
    let bank = Bank::new(mels);
    let mut spectrum = Spectrum::new();
    let mut out = vec![0.0f32; mels * frames]; // [mel, frame]
    for frame in 0..frames {
        let around = signal.get(frame * HOP..frame * HOP + FFT).unwrap_or_default();
        let power = spectrum.power(around);
        for (row, band) in out.chunks_exact_mut(frames).zip(&bank.bands) {
            row[frame] = band.sum(power).max(1e-10).log10();
        }
    }
    let top = out.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    out.iter_mut().for_each(|x| *x = (x.max(top - 8.0) + 4.0) / 4.0);
    out
}

/// The samples of the window with half a transform of their mirror image on each side.
fn mirrored(samples: &[f32], frames: usize) -> Vec<f32> {
    let (length, half) = ((frames * HOP) as isize, (FFT / 2) as isize);
    let samples = &samples[..samples.len().min(frames * HOP)];
    let mut signal = vec![0.0; frames * HOP + FFT];
    if frames == 0 {
        return signal;
    }
    signal[FFT / 2..FFT / 2 + samples.len()].copy_from_slice(samples);
    for i in (-half..0).chain(length..length + half) {
        let mut at = i;
        // A window of one frame is shorter than its mirror image: fold until inside.
        while at < 0 || at >= length {
            at = if at < 0 { -at } else { 2 * (length - 1) - at };
        }
        signal[(i + half) as usize] = samples.get(at as usize).copied().unwrap_or(0.0);
    }
    signal
}

/// A transform with its buffers: no allocation per frame.
struct Spectrum {
    window: Vec<f32>,
    fft: std::sync::Arc<dyn Fft<f32>>,
    buffer: Vec<Complex32>,
    scratch: Vec<Complex32>,
    power: Vec<f32>,
}

impl Spectrum {
    fn new() -> Self {
        let fft = FftPlanner::new().plan_fft_forward(FFT);
        let scratch = vec![Complex32::default(); fft.get_inplace_scratch_len()];
        // Periodic: the window's period is the transform's length, not one less.
        let hann = |i| (0.5 - 0.5 * (TAU * i as f64 / FFT as f64).cos()) as f32;
        Self {
            window: (0..FFT).map(hann).collect(),
            fft,
            buffer: vec![Complex32::default(); FFT],
            scratch,
            power: vec![0.0; BINS],
        }
    }

    /// The squared magnitudes of the windowed samples.
    fn power(&mut self, samples: &[f32]) -> &[f32] {
        // Silence, which is most of a padded window.
        if samples.iter().all(|x| *x == 0.0) {
            self.power.fill(0.0);
            return &self.power;
        }
        for ((slot, x), weight) in self.buffer.iter_mut().zip(samples).zip(&self.window) {
            *slot = Complex32::new(x * weight, 0.0);
        }
        self.fft.process_with_scratch(&mut self.buffer, &mut self.scratch);
        for (power, value) in self.power.iter_mut().zip(&self.buffer) {
            *power = value.norm_sqr();
        }
        &self.power
    }
}

/// Slaney's mel filters as librosa computes them: triangles between neighbouring mel steps, each of area 1 over
/// frequency, so that wide bands are not louder.
struct Bank {
    bands: Vec<Band>,
}

/// A triangle without the zeros around it.
struct Band {
    first: usize,
    weights: Vec<f32>,
}

impl Bank {
    fn new(mels: usize) -> Self {
        let top = mel_of(f64::from(RATE) / 2.0);
        let edge = |i: usize| hertz_of(top * i as f64 / (mels + 1) as f64);
        Self { bands: (0..mels).map(|i| Band::new(edge(i), edge(i + 1), edge(i + 2))).collect() }
    }
}

impl Band {
    fn new(low: f64, middle: f64, high: f64) -> Self {
        let weight = |bin: usize| {
            let hertz = f64::from(RATE) * bin as f64 / FFT as f64;
            let triangle = ((hertz - low) / (middle - low)).min((high - hertz) / (high - middle));
            (triangle.max(0.0) * 2.0 / (high - low)) as f32
        };
        let first = (0..BINS).find(|bin| weight(*bin) > 0.0).unwrap_or(0);
        let weights = (first..BINS).map(weight).take_while(|w| *w > 0.0).collect();
        Self { first, weights }
    }

    fn sum(&self, power: &[f32]) -> f32 {
        let power = power.get(self.first..).unwrap_or_default();
        self.weights.iter().zip(power).map(|(w, p)| w * p).sum()
    }
}

/// Slaney's scale: 3 mels to 200 Hz up to 1 kHz, 27 mels to each factor of 6.4 above.
fn mel_of(hertz: f64) -> f64 {
    if hertz < 1000.0 { hertz * 3.0 / 200.0 } else { 15.0 + 27.0 * (hertz / 1000.0).ln() / 6.4f64.ln() }
}

fn hertz_of(mel: f64) -> f64 {
    if mel < 15.0 { mel * 200.0 / 3.0 } else { 1000.0 * 6.4f64.powf((mel - 15.0) / 27.0) }
}

/// The filters as a matrix, [mels, 201], to show or compare them.
pub fn mel_filters(mels: usize) -> Vec<f32> {
    let mut matrix = vec![0.0; mels * BINS];
    for (row, band) in matrix.chunks_exact_mut(BINS).zip(Bank::new(mels).bands) {
        row[band.first..band.first + band.weights.len()].copy_from_slice(&band.weights);
    }
    matrix
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_flat_and_odd_sizes_do_no_harm() {
        // log10 of the floor is -10, and (-10 + 4) / 4 is -1.5.
        assert!(log_mel(&[], 80, 3000).iter().all(|x| *x == -1.5));
        assert!(log_mel(&[0.0; 100], 80, 10).iter().all(|x| *x == -1.5));
        for (samples, mels, frames) in [(0, 0, 0), (1000, 80, 0), (1000, 0, 5), (1000, 8, 1), (3, 500, 2)] {
            let out = log_mel(&vec![0.5; samples], mels, frames);
            assert_eq!(out.len(), mels * frames);
            assert!(out.iter().all(|x| x.is_finite()));
        }
    }

    #[test]
    fn a_tone_is_loudest_in_its_band() {
        let tone: Vec<f32> = (0..16_000).map(|i| (TAU * 1000.0 * f64::from(i) / 16e3).sin() as f32).collect();
        let out = log_mel(&tone, 80, 100);
        let loudest = (0..80).max_by(|a, b| out[a * 100 + 50].total_cmp(&out[b * 100 + 50]));
        let centre = |band: usize| hertz_of(mel_of(8000.0) * (band + 1) as f64 / 81.0);
        assert!(loudest.is_some_and(|band| (centre(band) - 1000.0).abs() < 25.0), "{loudest:?}");
    }
}
