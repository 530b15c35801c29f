// The matrices of attentions: chosen, averaged, maximised and renormalised from what the report holds.

import { bytes, floats } from "./bytes.ts";
import type { Attention, Mask, MaskRuns, Picture, PictureOf, Run, Side } from "./types.ts";
import type { State } from "./state.ts";

export interface Matrix {
  rows: number;
  columns: number;
  /** Row-major. */
  values: Float32Array;
  /** Queries that a row stands for, keys that a column stands for. */
  queriesARow: number;
  keysAColumn: number;
  /** The query of the first row, the key of the first column: padding before them is left out. */
  firstQuery: number;
  firstKey: number;
  /** Whether these are the values themselves, not codes of 8 bits. */
  exact: boolean;
  /** 1 where a mask hides all that a cell stands for; null where the mask is not known, or was not applied yet. */
  masked: Uint8Array | null;
  /** 1 for each column that a reader left out. */
  leftOut: Uint8Array | null;
  /** The cell of the run that is shown: of a group its largest, of a mean or a maximum that of the head with the most. */
  cell: (row: number, column: number) => { head: number; query: number; key: number };
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

const unpacked = new WeakMap<object, Uint8Array>();

/** Where in its group the largest cell is, of a cell of a reduced picture. */
function placeAt(picture: Picture, index: number): number {
  if (picture.places === null) return 0;
  let packed = unpacked.get(picture);
  if (!packed) unpacked.set(picture, (packed = bytes(picture.places)));
  const bits = Math.ceil(Math.log2(picture.queries_a_row * picture.keys_a_column));
  let place = 0;
  for (let bit = 0; bit < bits; bit++) {
    const at = index * bits + bit;
    place |= (((packed[at >> 3] as number) >> (at & 7)) & 1) << bit;
  }
  return place;
}

/** The mask of an attention in runs, whichever way the report holds it. */
export function maskOf(run: Run, attention: Attention): MaskRuns | null {
  const name = attention.kind === "cross_attn" ? "M_x" : attention.stack === "encoder" ? "M_e" : "M_d";
  // Layers may differ in what they see: then each kind of layer has a mask of its own.
  const isOfLayer = (mask: MaskRuns) => mask.of_layers?.includes(attention.layer) ?? true;
  return masksOf(run).find((mask) => mask.name === name && isOfLayer(mask)) ?? null;
}

const inRuns = new WeakMap<Run, MaskRuns[]>();

/** The masks of the row that is shown, in runs. */
export function masksOf(run: Run): MaskRuns[] {
  const known = inRuns.get(run);
  if (known) return known;
  const masks = run.masks?.masks.map((mask) => runsOf(mask, run.row)) ?? run.mask_runs;
  inRuns.set(run, masks);
  return masks;
}

function runsOf(mask: Mask, row: number): MaskRuns {
  const rows = mask.rows[row] ?? [];
  const runs = (letters: string) => {
    const found: [string, number][] = [];
    for (const letter of letters) {
      const last = found.at(-1);
      if (last?.[0] === letter) last[1]++;
      else found.push([letter, 1]);
    }
    return found;
  };
  return {
    ...mask,
    queries: rows.length,
    keys: rows[0]?.length ?? 0,
    rows: rows.map((letters) => ({ queries: 1, keys: runs(letters) })),
    blind: mask.blind[row] ?? [],
  };
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

/** Whether an attention has this head; `mean` and `max` stand for all of them. */
export function hasHead(attention: Attention, head: string): boolean {
  return head === "mean" || head === "max" || (/^\d+$/.test(head) && Number(head) < attention.heads);
}

/** Which cells of an attention a picture shows: padding around the tokens is left out, and cells may be shown in groups. */
interface Frame {
  firstQuery: number;
  firstKey: number;
  rows: number;
  columns: number;
  queriesARow: number;
  keysAColumn: number;
}

function frameOf(run: Run, attention: Attention, picture: Picture | null): Frame {
  if (picture) {
    return {
      firstQuery: picture.first_query,
      firstKey: picture.first_key,
      rows: picture.rows,
      columns: picture.columns,
      queriesARow: picture.queries_a_row,
      keysAColumn: picture.keys_a_column,
    };
  }
  const [top, bottom] = positionsOf(run, attention.query_side, attention.queries);
  const [left, right] = positionsOf(run, attention.key_side, attention.keys);
  const [rows, columns] = [bottom - top, right - left];
  return { firstQuery: top, firstKey: left, rows, columns, queriesARow: 1, keysAColumn: 1 };
}

/** The positions of a side from its first token to its last: padding around them is not drawn. */
export function positionsOf(run: Run, side: Side, count: number): [number, number] {
  const rows = side === "source" ? run.trace.tokens.source : run.trace.tokens.target;
  const open = (rows?.[run.row] ?? []).map((token) => !token.padding);
  const [first, last] = [open.indexOf(true), open.lastIndexOf(true)];
  return first === -1 || open.length !== count ? [0, count] : [first, last + 1];
}

/** What a frame shows of a matrix of all cells. */
function framed(
  all: Float32Array,
  width: number,
  { firstQuery, firstKey, rows, columns }: Frame,
): Float32Array {
  if (rows * columns === all.length) return all;
  const out = new Float32Array(rows * columns);
  for (let r = 0; r < rows; r++) {
    const from = (firstQuery + r) * width + firstKey;
    out.set(all.subarray(from, from + columns), r * columns);
  }
  return out;
}

/** The matrix of a head, or of all: `mean` or `max`. Null where the report does not hold it. */
export function matrix(run: Run, attention: Attention, head: string, toggles: Toggles): Matrix | null {
  if (toggles.show === "mask") return ofMask(run, attention);
  const of = pictureOf(toggles as State);
  const picture = attention.pictures.find((picture) => picture.of === of);
  const step = of === "weights" || of === "scores" ? of : null;
  const tensor = step ? ofTensor(run, `${attention.path}.${step}`) : null;
  const reduced = tensor ? null : (picture ?? null);
  const frame = frameOf(run, attention, reduced);
  const matrices =
    tensor?.map((all) => framed(all, attention.keys, frame)) ?? (picture ? ofPicture(picture) : null);
  if (!matrices || matrices.length === 0) return null;
  const { rows, columns, firstQuery, firstKey, queriesARow, keysAColumn } = frame;
  const one = matrices.length === 1 ? 0 : Number(head);
  let values = matrices[one];
  if (!values) values = head === "max" ? largest(matrices) : mean(matrices);
  const ends = attention.ends
    .map((key) => key - firstKey)
    .filter((column) => 0 <= column && column < columns);
  const isWithout = toggles.ends === "without" && ends.length > 0 && of !== "scores" && keysAColumn === 1;
  if (isWithout) values = withoutKeys(values, columns, ends);
  const cell = (row: number, column: number) => {
    const at = row * columns + column;
    const drawn = matrices[one] ? one : headOfMost(matrices, at);
    const place = reduced ? placeAt(reduced, drawn * rows * columns + at) : 0;
    return {
      // Contributions are of all heads together.
      head: matrices.length > 1 ? drawn : Math.min(attention.heads - 1, Number(head) || 0),
      query: firstQuery + row * queriesARow + Math.floor(place / keysAColumn),
      key: firstKey + column * keysAColumn + (place % keysAColumn),
    };
  };
  return {
    ...frame,
    values,
    exact: tensor !== null,
    // Scores are from before the mask.
    masked: of === "scores" ? null : hidden(run, attention, frame),
    leftOut: isWithout ? Uint8Array.from({ length: columns }, (_, c) => Number(ends.includes(c))) : null,
    cell,
    ...range(values, of !== "scores"),
  };
}

function headOfMost(matrices: Float32Array[], at: number): number {
  let most = 0;
  matrices.forEach((one, head) => {
    if ((one[at] as number) > (matrices[most]?.[at] as number)) most = head;
  });
  return most;
}

/** 1 for each cell of a frame behind which the mask hides everything. */
function hidden(run: Run, attention: Attention, frame: Frame): Uint8Array | null {
  const mask = maskOf(run, attention);
  if (!mask) return null;
  const { rows, columns, firstQuery, firstKey, queriesARow, keysAColumn } = frame;
  const out = new Uint8Array(rows * columns).fill(1);
  const within = (from: number, count: number, first: number, each: number, most: number) => [
    Math.max(0, Math.floor((from - first) / each)),
    Math.min(most, Math.ceil((from + count - first) / each)),
  ];
  let query = 0;
  for (const row of mask.rows) {
    const [from, to] = within(query, row.queries, firstQuery, queriesARow, rows) as [number, number];
    let key = 0;
    for (const [letter, count] of row.keys) {
      const [left, right] = within(key, count, firstKey, keysAColumn, columns) as [number, number];
      if (letter === "o" && left < right)
        for (let r = from; r < to; r++) out.fill(0, r * columns + left, r * columns + right);
      key += count;
    }
    query += row.queries;
  }
  return out;
}

function ofMask(run: Run, attention: Attention): Matrix | null {
  // As coarse as the weights.
  const picture = attention.pictures.find((picture) => picture.of === "weights");
  const frame = frameOf(run, attention, picture ?? null);
  const masked = hidden(run, attention, frame);
  if (!masked) return null;
  const values = Float32Array.from(masked, (isMasked) => 1 - isMasked);
  const cell = (row: number, column: number) => ({
    head: 0,
    query: frame.firstQuery + row * frame.queriesARow,
    key: frame.firstKey + column * frame.keysAColumn,
  });
  return { ...frame, values, exact: true, masked, leftOut: null, cell, low: 0, high: 1 };
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

/** Whether a mask hides a cell. A weight that is there although it should be masked is shown. */
export function isMasked({ masked, values }: Matrix, at: number): boolean {
  return masked?.[at] === 1 && !((values[at] as number) > 0);
}

/** Whether a reader left a cell out. */
export function isLeftOut({ leftOut, columns }: Matrix, at: number): boolean {
  return leftOut?.[at % columns] === 1;
}

/** The value at and below which a logarithmic scale has its darkest colour: four powers of ten below the largest. */
export function logFloor({ low, high }: Pick<Matrix, "low" | "high">): number {
  return low < 0 ? low : high * 1e-4;
}

/** Where a value lies among colours, from 0 to 1; NaN for one that has none. */
export function tone(value: number, { low, high }: Pick<Matrix, "low" | "high">, log: boolean): number {
  if (!Number.isFinite(value)) return NaN;
  if (high <= low) return 0;
  if (!log) return (value - low) / (high - low);
  const floor = logFloor({ low, high });
  // Where values are negative, the logarithm is that of 1 + how far they are above the least.
  if (low < 0) return Math.log1p(value - floor) / Math.log1p(high - floor);
  return value <= floor ? 0 : Math.log(value / floor) / Math.log(high / floor);
}
