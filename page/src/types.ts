// The answers as the page reads them: those keys of schema/report.json that it uses.

export interface Token {
  id: number;
  piece: string | null;
  padding: boolean;
}

export interface Stats {
  min: number | null;
  mean: number | null;
  max: number | null;
  std: number | null;
  zeros: number;
  nan: number;
  inf: number;
}

export interface FlowNode {
  path: string;
  stack: "encoder" | "decoder" | null;
  layer: number | null;
  part: string;
  step: string;
  op: string;
  inputs: string[];
  dims: string[];
  shape: (number | null)[];
  formula: string;
  what: string;
  weights: {
    name?: string;
    path?: string;
    tensor?: string | null;
    shape?: number[];
    dtype?: string;
    state?: string;
  }[];
}

export interface TracedNode {
  path: string;
  op: string;
  inputs: string[];
  dims: string[];
  shape: number[] | null;
  snapshots: number[];
  stats: Stats | null;
}

export interface Snapshot {
  number: number;
  node: string;
  beside: string[];
  what: string;
  dims: string[];
  shape: number[] | null;
  stats: Stats | null;
}

export type PictureOf = "weights" | "scores" | "weighted_values" | "contribution";

export interface Picture {
  of: PictureOf;
  heads: number;
  rows: number;
  columns: number;
  first_query: number;
  first_key: number;
  queries_a_row: number;
  keys_a_column: number;
  low: number[];
  high: number[];
  codes: string;
  places: string | null;
}

export type Side = "source" | "target";

export interface Attention {
  path: string;
  stack: "encoder" | "decoder";
  layer: number;
  kind: "self_attn" | "cross_attn";
  query_side: Side;
  key_side: Side;
  heads: number;
  queries: number;
  keys: number;
  ends: number[];
  measures: { entropy: number | null; peak: number | null; end_share: number | null }[];
  pictures: Picture[];
  largest: { weights: string; keys: string } | null;
  on_padding: number | null;
  stream_share: string | null;
}

export interface HeadBadge {
  attention: string;
  head: number;
  badge: "sink" | "dead" | "duplicate" | "near_uniform";
  number: number | null;
  threshold: number;
  other: number | null;
}

export interface Mask {
  name: string;
  attention: string;
  causal: boolean;
  padding: boolean;
  shape: number[];
  heads: number;
  layers: number;
  of_layers?: number[];
  reasons: string[];
  rows: string[][];
  blind: number[][];
}

/** A mask whose cells stand in runs: [letter, how many keys]. */
export interface MaskRuns {
  name: string;
  attention: string;
  heads: number;
  layers: number;
  of_layers?: number[];
  reasons: string[];
  queries: number;
  keys: number;
  rows: { queries: number; keys: [string, number][] }[];
  blind: number[];
}

export interface ClassScore {
  class: number;
  name: string | null;
  score: number | null;
  probability: number | null;
}

export interface Proof {
  claim: string;
  perturbed: string;
  expected: string;
  verdict: "holds" | "fails" | "not_run" | "inconclusive";
  runs: number;
  cells: number;
  movement: number | null;
  felt: number | null;
  threshold: number | null;
  leak?: { node: string; at: number[]; movement: number | null; cause: string };
  why?: string;
}

export interface LeftOut {
  part: string;
  why: string;
}

export interface PagePart {
  heading?: string;
  words?: string;
  formula?: string;
  facts?: Record<string, string>;
  columns?: string[];
  rows?: string[][];
  drawing?: string;
}

export interface CellPage {
  title: string;
  parts: PagePart[];
}

export interface TimedWord {
  word: string;
  start: number;
  end: number;
  probability: number;
}

export interface Run {
  row: number;
  source_text: string | null;
  target_text: string | null;
  trace: {
    tokens: {
      source: Token[][] | null;
      target: Token[][] | null;
      generated: boolean;
      recording?: { seconds: number; window_seconds: number };
    };
    nodes: TracedNode[];
    snapshots?: Snapshot[];
    notes: unknown[];
  };
  generation: {
    text?: string;
    outputs: {
      source?: { text?: string | null } | null;
      hypotheses: { text: string | null }[];
      words?: TimedWord[] | null;
    }[];
  } | null;
  masks: {
    masks: Mask[];
    proofs: Proof[];
    not_finite: { node: string; at: number[]; value: string } | null;
  } | null;
  mask_runs: MaskRuns[];
  classes: ClassScore[] | null;
  attentions: Attention[];
  histograms: Record<string, { low: number; high: number; counts: number[] }>;
  values: Record<string, { shape: number[]; values: string }>;
  cells: Record<string, { row: number; shape: [number, number, number]; pages: string }>;
  spectrogram: {
    mels: number;
    columns: number;
    seconds_a_column: number;
    low: number;
    high: number;
    codes: string;
  } | null;
  left_out: LeftOut[];
}

export interface Finding {
  rule: string;
  severity: "error" | "warning" | "info";
  node: string | null;
  slice: string | null;
  number: number | null;
  threshold: number | null;
  evidence: string;
  try_next: string;
  explain: string;
}

export interface Measure {
  rule: string;
  name: string;
  node: string | null;
  slice: string | null;
  number: number | null;
  threshold: number | null;
  words: string | null;
}

export interface Doctor {
  basis: string;
  findings: Finding[];
  checked: string[];
  measures: Measure[];
  not_checked: { rule: string; why: string; how: string }[];
}

export interface DiffNode {
  node: string;
  shape: number[];
  max_abs: number | null;
  relative: number | null;
  apart: number;
  state: "same" | "rounding" | "first" | "after" | "apart";
  cell?: { at: number[]; a: number | null; b: number | null } | null;
}

export interface Diff {
  a: { path: string; kind: string; tensors: number };
  b: { path: string; kind: string; tensors: number };
  first_divergence: {
    node: string;
    kind: string;
    sentence: string | null;
    max_abs: number | null;
    reads: string[];
    cell?: { at: number[]; a: number | null; b: number | null };
  } | null;
  inputs: "same" | "different";
  input_difference: { sentence: string } | null;
  nodes: DiffNode[];
}

export interface Metric {
  kind: "train" | "validation" | "monitor" | "warning";
  step: number;
  nll?: number;
  accuracy?: number;
  loss?: number;
  bleu?: number | null;
  source_cost?: number | null;
  attentions?: {
    path: string;
    entropy: (number | null)[];
    head_norms: number[];
    output_ratio: number | null;
    dead_heads: number[];
  }[];
  says?: string;
  began?: number;
}

export interface Report {
  made_by?: string;
  model?: string;
  title?: string;
  inspection?: { format?: string };
  flow: { model: string; nodes: FlowNode[] };
  doctor?: Doctor | null;
  badges?: HeadBadge[];
  run?: Run | null;
  diff?: Diff | null;
  training?: { folder: string; is_of_model: boolean; metrics: Metric[] } | null;
  left_out?: LeftOut[];
}

export interface Commands {
  explain?: string;
  trace?: string;
  /** One tensor, to a folder. */
  keep?: string;
  /** All of them. */
  save?: string;
  masks?: string;
  align?: string;
}
