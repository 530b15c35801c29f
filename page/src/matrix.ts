// The matrices of attentions: chosen, averaged, maximised and renormalised from what the report holds.

import { bytes, floats } from "./bytes.ts";
import type { Attention, Mask, Picture, PictureOf, Run } from "./types.ts";
import type { State } from "./state.ts";

export interface Matrix {
  rows: number;
  columns: number;
  /** Row-major. */
  values: Float32Array;
  /** Queries that a row stands for, keys that a column stands for. */
  queriesARow: number;
  keysAColumn: number;
  /** Whether these are the values themselves, not codes of 8 bits. */
  exact: boolean;
  low: number;
  high: number;
}

const decoded = new WeakMap<object, Float32Array[]>();

/** The matrices of a picture, from their codes. */
function ofPicture(picture: Picture): Float32Array[] {
  const known = decoded.get(picture);
  if (known) return known;
  const codes = bytes(picture.codes);
  const cells = picture.rows * picture.columns;
  const matrices = Array.from({ length: picture.heads }, (_, head) => {
    const [low, high] = [picture.low[head] ?? 0, picture.high[head] ?? 0];
    const values = new Float32Array(cells);
    for (let i = 0; i < cells; i++) {
      const code = codes[head * cells + i] as number;
      values[i] = code === 255 ? NaN : low + (code / 254) * (high - low);
    }
    return values;
  });
  decoded.set(picture, matrices);
  return matrices;
}

/** The exact matrices of a tensor [batch, head, query, key], where the report holds it. */
function ofTensor(run: Run, path: string): Float32Array[] | null {
  const held = run.values[path];
  if (!held || held.shape.length !== 4) return null;
  const known = decoded.get(held);
  if (known) return known;
  const [, heads, rows, columns] = held.shape as [number, number, number, number];
  const cells = rows * columns;
  const all = floats(held.values);
  const from = run.row * heads * cells;
  const matrices = Array.from({ length: heads }, (_, head) =>
    all.subarray(from + head * cells, from + (head + 1) * cells),
  );
  decoded.set(held, matrices);
  return matrices;
}

export function maskOf(run: Run, attention: Attention): Mask | null {
  const name = attention.kind === "cross_attn" ? "M_x" : attention.stack === "encoder" ? "M_e" : "M_d";
  // Layers may differ in what they see: then each kind of layer has a mask of its own.
  const isOfLayer = (mask: Mask) => mask.of_layers?.includes(attention.layer) ?? true;
  return run.masks?.masks.find((mask) => mask.name === name && isOfLayer(mask)) ?? null;
}

/** What is measured, by the toggles. */
export function pictureOf(state: State): PictureOf {
  if (state.show === "scores") return "scores";
  if (state.measure === "values") return "weighted_values";
  return state.measure === "contribution" ? "contribution" : "weights";
}

/** Whether a picture can be shown. */
export function has(attention: Attention, of: PictureOf): boolean {
  return attention.pictures.some((picture) => picture.of === of);
}

type Toggles = Pick<State, "show" | "measure" | "ends">;

/** The matrix of a head, or of all: `mean` or `max`. Null where the report does not hold it. */
export function matrix(run: Run, attention: Attention, head: string, toggles: Toggles): Matrix | null {
  if (toggles.show === "mask") return ofMask(run, attention);
  const of = pictureOf(toggles as State);
  const picture = attention.pictures.find((picture) => picture.of === of);
  const step = of === "weights" || of === "scores" ? of : null;
  const tensor = step ? ofTensor(run, `${attention.path}.${step}`) : null;
  const matrices = tensor ?? (picture ? ofPicture(picture) : null);
  if (!matrices || matrices.length === 0) return null;
  const [rows, columns] = tensor
    ? [attention.queries, attention.keys]
    : [picture?.rows ?? 0, picture?.columns ?? 0];
  const [queriesARow, keysAColumn] = tensor
    ? [1, 1]
    : [picture?.queries_a_row ?? 1, picture?.keys_a_column ?? 1];
  const one = matrices.length === 1 ? 0 : Number(head);
  let values = matrices[one];
  if (!values) values = head === "max" ? largest(matrices) : mean(matrices);
  if (toggles.ends === "without" && attention.ends.length > 0 && of !== "scores" && keysAColumn === 1) {
    values = withoutKeys(values, columns, attention.ends);
  }
  return {
    rows,
    columns,
    values,
    queriesARow,
    keysAColumn,
    exact: tensor !== null,
    ...range(values, of !== "scores"),
  };
}

function ofMask(run: Run, attention: Attention): Matrix | null {
  const rows = maskOf(run, attention)?.rows[run.row];
  const first = rows?.[0];
  if (!rows || first === undefined) return null;
  const values = new Float32Array(rows.length * first.length);
  rows.forEach((row, r) =>
    [...row].forEach((letter, c) => (values[r * first.length + c] = letter === "o" ? 1 : NaN)),
  );
  return {
    rows: rows.length,
    columns: first.length,
    values,
    queriesARow: 1,
    keysAColumn: 1,
    exact: true,
    low: 0,
    high: 1,
  };
}

function mean(all: Float32Array[]): Float32Array {
  const out = new Float32Array(all[0]?.length ?? 0);
  for (const one of all)
    for (let i = 0; i < out.length; i++) out[i] = (out[i] as number) + (one[i] as number) / all.length;
  return out;
}

function largest(all: Float32Array[]): Float32Array {
  const out = new Float32Array(all[0]?.length ?? 0).fill(-Infinity);
  for (const one of all)
    for (let i = 0; i < out.length; i++) out[i] = Math.max(out[i] as number, one[i] as number);
  return out;
}

/** Without some keys, each row adding up to what it did before. */
function withoutKeys(values: Float32Array, columns: number, keys: number[]): Float32Array {
  const out = values.slice();
  for (let from = 0; from < out.length; from += columns) {
    let [whole, rest] = [0, 0];
    for (let c = 0; c < columns; c++) {
      const value = out[from + c] as number;
      whole += value;
      if (!keys.includes(c)) rest += value;
    }
    for (let c = 0; c < columns; c++) {
      out[from + c] = keys.includes(c) ? NaN : rest > 0 ? ((out[from + c] as number) * whole) / rest : 0;
    }
  }
  return out;
}

function range(values: Float32Array, fromZero: boolean): { low: number; high: number } {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (!Number.isFinite(value)) continue;
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  if (low > high) return { low: 0, high: 0 };
  return { low: fromZero ? Math.min(low, 0) : low, high };
}

/** Where a value lies among colours, from 0 to 1; NaN for one that has none. */
export function tone(value: number, { low, high }: Matrix, log: boolean): number {
  if (!Number.isFinite(value)) return NaN;
  if (high <= low) return 0;
  if (!log) return (value - low) / (high - low);
  // Four powers of ten below the largest value, whatever the sign of the least.
  const floor = low < 0 ? low : high * 1e-4;
  if (low < 0) return Math.log1p(value - floor) / Math.log1p(high - floor);
  return value <= floor ? 0 : Math.log(value / floor) / Math.log(high / floor);
}
