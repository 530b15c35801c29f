//! A report: everything that is known of a model and of a run of it, with what a page needs to draw it.

mod attentions;
mod badges;
mod cells;
mod classes;
mod exact;
mod mask_runs;
mod packed;
mod picture;
mod training;
mod watch;

use std::path::{Path, PathBuf};

use attnscope_graph::{AttentionStep, AudioStep, Graph, Node, Role};
use attnscope_run::audio::POSITION_SECONDS;

pub(crate) use watch::TensorWatch;

use training::{own_training, read_training};

use crate::answer::{
    Base64, Diagnosis, Difference, LeftOut, MaskProof, MaskRuns, Output, Report, RunReport, SCHEMA,
    Spectrogram, Trace,
};
use crate::attention_map::Batch;
use crate::collect::{Collect, TensorUse};
use crate::doctor::DoctorOptions;
use crate::failure::{Failure, FailureKind};
use crate::flow::FlowOptions;
use crate::generate::GenerateOptions;
use crate::input::Input;
use crate::inspect::Detail;
use crate::masks::MaskOptions;
use crate::model::Model;
use crate::note::Notes;
use crate::trace::{TraceOptions, trace_collecting};

/// What a report is made of.
#[derive(Default)]
pub struct ReportOptions {
    /// The run; without it, the report is about the model alone.
    pub run: Option<RunOptions>,
    /// How the model is examined; without it, it is not.
    pub doctor: Option<DoctorOptions>,
    /// The comparison of two runs.
    pub diff: Option<Difference>,
    /// The folder of a training run, for what was measured while the model learned; where the model is such a folder itself, it
    /// needs not be given.
    pub training: Option<PathBuf>,
}

/// A run of a report.
#[derive(Debug, Clone, Default)]
pub struct RunOptions {
    /// What the model reads.
    pub input: Input,
    /// The row of the batch that pictures show.
    pub row: usize,
}

/// Tensors up to this size are kept, to be shown as they are.
const KEPT_BYTES: u64 = 1 << 20;
/// The same of weights and values of an attention, from which contributions are computed.
const KEPT_ATTENTION_BYTES: u64 = 16 << 20;
/// Masks of attentions with more queries or keys than this are drawn in runs and not proved: a proof runs the model many times.
const PROVED_POSITIONS: usize = 600;

/// Cells of the alignments of words that a report holds: those of 100 sentences of 40 words. Nothing in the page is drawn from
/// them, and as JSON a cell takes some 25 bytes.
const ALIGNED_CELLS: usize = 160_000;

/// Makes a report.
pub(crate) fn report(model: &Model, options: ReportOptions) -> Result<Report, Failure> {
    let opened = model.opened();
    let recognised = opened.model()?;
    let mut left_out = Vec::new();
    let training = match &options.training {
        Some(run) => Some(read_training(&opened.checkpoint, run)?),
        // The folder of a run stands for its best weights, and for how they were learned.
        None => match own_training(Path::new(&opened.name)) {
            Some(run) => optional("training", read_training(&opened.checkpoint, run), &mut left_out)?,
            None => None,
        },
    };
    let run = match (&options.run, recognised.obstacles.first()) {
        (None, _) => None,
        (Some(run), _) if training.is_some() && !run.input.is_there(opened) => {
            left_out.push(LeftOut { part: "run", why: "no text was given to run the model on".to_owned() });
            None
        }
        (Some(_), Some(why)) => {
            left_out.push(LeftOut { part: "run", why: why.to_string() });
            None
        }
        (Some(run), None) => Some(model.run_report(run)?),
    };
    let mut report = Report {
        schema: SCHEMA,
        made_by: concat!("attnscope ", env!("CARGO_PKG_VERSION")).to_owned(),
        model: opened.name.clone(),
        title: recognised.title(),
        inspection: model.inspect(Detail::Headers)?,
        flow: model.flow(&FlowOptions::default())?,
        badges: Vec::new(),
        doctor: None,
        run,
        diff: options.diff,
        training,
        left_out,
    };
    if let Some(doctor) = &options.doctor {
        report.examine(model, doctor)?;
    }
    Ok(report)
}

impl Report {
    /// Adds what the doctor says of the model, or why it says nothing.
    ///
    /// # Errors
    /// Where the call is cancelled.
    pub fn examine(&mut self, model: &Model, options: &DoctorOptions) -> Result<(), Failure> {
        self.doctor = optional("doctor", model.doctor(options), &mut self.left_out)?;
        let badges = |doctor: &Diagnosis| badges::badges(&doctor.diagnosis, &options.thresholds);
        self.badges = self.doctor.as_ref().map(badges).unwrap_or_default();
        Ok(())
    }
}

/// A part that a report can do without; a call that was cancelled ends the report.
fn optional<T>(
    part: &'static str,
    made: Result<T, Failure>,
    left_out: &mut Vec<LeftOut>,
) -> Result<Option<T>, Failure> {
    match made {
        Ok(made) => Ok(Some(made)),
        Err(failure) if failure.kind == FailureKind::Cancelled => Err(failure),
        Err(failure) => {
            left_out.push(LeftOut { part, why: failure.to_string() });
            Ok(None)
        }
    }
}

/// The part of a report that is about one run.
pub(crate) fn run_report(model: &Model, options: &RunOptions, notes: Notes) -> Result<RunReport, Failure> {
    let mut left_out = Vec::new();
    let trace_options = TraceOptions { measure_all: true, row: options.row, ..TraceOptions::default() };
    let (trace, watch) =
        trace_collecting(model, &options.input, &trace_options, notes, |graph, collected| {
            collect(graph, options.row, collected);
        })?;
    let ready = model.ready(&options.input)?;
    let batch = Batch { ready: &ready, input: trace.input.input(), row: options.row };
    let mut watch = watch.unwrap_or_else(|| TensorWatch::new(&ready.model.graph, options.row));
    let generation = match trace.tokens.generated {
        true => {
            let align = ready.model.architecture.has_cross_attention();
            let generate = GenerateOptions { align, ..GenerateOptions::default() };
            let made = model.generate(&options.input, &generate);
            let made = match made {
                // A model whose words cannot be aligned still generates.
                Err(failure) if align && failure.kind != FailureKind::Cancelled => {
                    model.generate(&options.input, &GenerateOptions::default())
                }
                made => made,
            };
            let mut made = optional("generation", made, &mut left_out)?;
            left_out
                .extend(made.as_mut().and_then(|made| bound_alignments(&mut made.outputs, ALIGNED_CELLS)));
            made
        }
        false => None,
    };
    let (masks, mask_runs) = masks(model, options, &trace, &mut left_out)?;
    let attentions = attentions::attentions(&batch, &trace, &mut watch, &mut left_out)?;
    let path = |id| ready.model.graph.node(id).path.to_string();
    let [source_text, target_text] = options.input.texts_of(&ready, options.row)?;
    Ok(RunReport {
        row: options.row,
        source_text,
        target_text,
        generation,
        masks,
        mask_runs,
        classes: classes::classes(&ready, &trace, options.row),
        histograms: watch.histograms.into_iter().map(|(id, histogram)| (path(id), histogram)).collect(),
        values: exact::values(&trace, &attentions, &mut left_out),
        cells: cells::cells(&ready, &trace, &attentions, options.row, &mut left_out)?,
        spectrogram: spectrogram(&ready.model.graph, &trace, options.row),
        attentions,
        trace,
        left_out,
    })
}

/// Leaves out the alignments for which there is no room any more, and says so.
fn bound_alignments(outputs: &mut [Output], mut room: usize) -> Option<LeftOut> {
    let mut without = Vec::new();
    for output in outputs {
        let Some(alignment) = &output.alignment else { continue };
        let (rows, columns) = (alignment.target_words.len(), alignment.source_words.len());
        match room.checked_sub(rows * columns) {
            Some(rest) => room = rest,
            None => {
                without.push(format!("{rows} × {columns}"));
                output.alignment = None;
            }
        }
    }
    let why = format!(
        "the alignment of {} words (target × source) is not in it: at most {ALIGNED_CELLS} cells are",
        without.join(", ")
    );
    (!without.is_empty()).then_some(LeftOut { part: "alignment", why })
}

/// Every tensor is looked at, and kept where it is small.
fn collect(graph: &Graph, row: usize, collected: &mut Collect) {
    use AttentionStep::{VHeads, Weights};
    let most = |node: &Node| match node.role.attention() {
        Some((_, VHeads | Weights)) => KEPT_ATTENTION_BYTES,
        // The features of a window, which the page shows as a picture.
        None if node.role == Role::Audio(AudioStep::Mel) => KEPT_ATTENTION_BYTES,
        _ => KEPT_BYTES,
    };
    for (id, node) in graph.iter() {
        collected.use_also(id, TensorUse::KeepUpTo(most(node)));
    }
    collected.watch = Some(TensorWatch::new(graph, row));
}

/// The masks with their proofs, or in runs where the input is too long for proofs.
fn masks(
    model: &Model,
    options: &RunOptions,
    trace: &Trace,
    left_out: &mut Vec<LeftOut>,
) -> Result<(Option<MaskProof>, Vec<MaskRuns>), Failure> {
    let graph = &model.opened().model()?.graph;
    if !graph.has_attention() {
        return Ok((None, Vec::new()));
    }
    let shapes = trace.nodes.iter().filter(|node| node.is_mask).filter_map(|node| node.shape.as_ref());
    let longest = shapes.flat_map(|shape| shape.iter().skip(2).copied()).max().unwrap_or(0);
    if longest > PROVED_POSITIONS {
        let why = format!(
            "the masks are not proved here: {longest} positions are too many for proofs, which run the model many \
             times (at most {PROVED_POSITIONS})"
        );
        left_out.push(LeftOut { part: "proofs", why });
        return Ok((None, mask_runs::mask_runs(trace, options.row)?));
    }
    let proved = model.masks(&options.input, &MaskOptions { row: options.row, ..MaskOptions::default() });
    Ok((optional("masks", proved, left_out)?, Vec::new()))
}

/// The features that an audio model read, a column for each position of its encoder.
fn spectrogram(graph: &Graph, trace: &Trace, row: usize) -> Option<Spectrogram> {
    let kept = trace.kept.get(&graph.at(Role::Audio(AudioStep::Mel))?)?;
    let &[_, mels, frames] = kept.shape() else { return None };
    let values = kept.values().as_f32();
    let values = values.get(row * mels * frames..(row + 1) * mels * frames)?;
    let positions = graph.positions_of(frames).max(1);
    let each = frames.div_ceil(positions).max(1);
    let finite = || values.iter().copied().filter(|x| x.is_finite());
    let (low, high) = (finite().fold(f32::INFINITY, f32::min), finite().fold(f32::NEG_INFINITY, f32::max));
    let largest = |group: &[f32]| group.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let codes = values.chunks(frames).flat_map(|band| band.chunks(each).map(largest));
    let codes: Vec<u8> = codes.map(|x| picture::code(x, low, high)).collect();
    Some(Spectrogram {
        mels,
        columns: frames.div_ceil(each),
        seconds_a_column: POSITION_SECONDS / 2.0 * each as f64,
        low,
        high,
        codes: Base64(codes),
    })
}

#[cfg(test)]
mod tests {
    use crate::answer::{AlignedWord, Output, WordAlignment};

    use super::bound_alignments;

    fn aligned(target: usize, source: usize) -> Output {
        let words = |count| vec![AlignedWord { text: "dog".into(), tokens: [0, 1], special: false }; count];
        let alignment = WordAlignment {
            source_words: words(source),
            target_words: words(target),
            weights: Vec::new(),
            links: Vec::new(),
        };
        Output {
            source: None,
            start: Vec::new(),
            start_pieces: Vec::new(),
            hypotheses: Vec::new(),
            prompt: None,
            said: None,
            segments: None,
            alignment: Some(alignment),
            words: None,
        }
    }

    #[test]
    fn alignments_that_do_not_fit_are_left_out_and_named() {
        let mut outputs = [aligned(4, 5), aligned(30, 40), aligned(2, 5)];
        let left_out = bound_alignments(&mut outputs, 30).unwrap();
        assert_eq!(outputs.each_ref().map(|output| output.alignment.is_some()), [true, false, true]);
        assert_eq!(left_out.part, "alignment");
        assert!(left_out.why.contains("30 × 40 words"), "{}", left_out.why);
        let mut small = [aligned(4, 5)];
        assert_eq!(bound_alignments(&mut small, 20), None);
        assert!(small[0].alignment.is_some());
    }
}
