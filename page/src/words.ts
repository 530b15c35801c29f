// Words for keys of the answers, which programs read: measures of the doctor, and operations of the model.

import { number } from "./dom.ts";

/** What each measure is, and in what unit. */
const MEASURES: Record<string, [string, string]> = {
  weights: ["weights with it", ""],
  matrices: ["matrices with it", ""],
  tensors: ["tensors without a use", ""],
  tokens: ["ids of the tokenizer", "ids"],
  largest_value: ["largest absolute value", ""],
  proofs: ["proofs that hold", ""],
  movement: ["largest movement of a value", ""],
  losses: ["weights that are missing, copied or dropped", ""],
  repair_gain: ["gain of the best repair", "nats a token"],
  gain: ["gain of the best other wiring", "nats a token"],
  nll: ["negative log-likelihood", "nats a token"],
  source_cost: ["cost of another source", "nats a token"],
  position_effect: ["movement of the logits when words are exchanged", "of their standard deviation"],
  output_share: ["norm of what the head adds", "of the mean of its attention's heads"],
  divergence: ["divergence of the two heads' weights", "nats"],
  cosine: ["cosine of the two heads' outputs", ""],
  entropy: ["entropy of the weights", "of what is possible"],
  cross_entropy: ["entropy of the weights of a cross-attention", "of what is possible"],
  branch_ratio: ["norm of what the sublayer adds", "of that of its stream"],
  sink_weight: ["largest mean weight on one position", "of a query's weight"],
};

/** The unit of a finding's number, where it is not that of its rule's first measure. */
const UNITS: Record<string, string> = {
  "nonfinite-weight": "values",
  "unused-weight": "tensors",
  "vocabulary-mismatch": "ids",
  "special-token-mismatch": "the id",
  "past-positions": "positions",
  "first-nan": "",
  "causal-leak": "",
  "padding-leak": "",
  "cross-mask-fault": "",
  "misconverted-weight": "nats a token",
};

export function measureWords(name: string): string {
  return MEASURES[name]?.[0] ?? name.replaceAll("_", " ");
}

export function unitOf(name: string): string {
  return MEASURES[name]?.[1] ?? "";
}

/** The unit of the number of a rule's finding; `first` is the name of the rule's first measure. */
export function unitOfRule(rule: string, first: string | undefined): string {
  return UNITS[rule] ?? unitOf(first ?? "");
}

/** A number with its unit and its threshold. */
export function numberWords(value: number | null, threshold: number | null, unit: string): string {
  const of = unit ? ` ${unit}` : "";
  return `${number(value)}${of}${threshold === null ? "" : ` (threshold ${number(threshold)})`}`;
}

/** What a node does, for whom its key is no word. */
const OPERATIONS: Record<string, string> = {
  squash: "normalise the scores",
  same: "the same tensor under another name",
  activate: "activation function",
  beside: "put side by side",
  recur: "recurrent cell",
  linear: "linear map",
  embed: "look up in a table",
  norm: "normalise the stream",
  ids: "token ids",
  context: "sum of the values by the weights",
  residual: "sum with the stream",
};

export function operationWords(op: string): string {
  return OPERATIONS[op] ?? op.replaceAll("_", " ");
}
