// What is shown: it lives in the address, so that a link shows what its sender saw.

export interface State {
  /** The part that is open in the narrow menu, and scrolled to. */
  part: string;
  /** encoder, decoder or cross. */
  attn: string;
  /** `decoder.0.cross_attn`, the enlarged one. */
  map: string;
  /** A head's number, `mean` or `max`. */
  head: string;
  show: "weights" | "scores" | "mask";
  measure: "attention" | "values" | "contribution";
  ends: "raw" | "without";
  scale: "linear" | "log";
  /** The enlarged picture: a matrix or links. */
  view: "matrix" | "links";
  /** What is seen of the matrix, in cells: first column, first row, columns, rows; empty for all of it. */
  zoom: string;
  /** Locked tokens of each side. */
  src: number[];
  tgt: number[];
  /** The cell whose arithmetic is open: head, query, key. */
  cell: string;
  /** The stop of the walk. */
  stop: number;
  /** The node that is open in the model, and the one in the list of tensors. */
  node: string;
  /** The layers that are open in the model: `decoder.0`. */
  layer: string;
  tensor: string;
  /** The selector of the list of tensors. */
  find: string;
  theme: "" | "light" | "dark";
  /** On a server: what was run. A recording is named only. */
  source: string;
  target: string;
  second: string;
  recording: string;
}

const usual: State = {
  part: "",
  attn: "",
  map: "",
  head: "0",
  show: "weights",
  measure: "attention",
  ends: "raw",
  scale: "linear",
  view: "matrix",
  zoom: "",
  src: [],
  tgt: [],
  cell: "",
  stop: 0,
  node: "",
  layer: "",
  tensor: "",
  find: "",
  theme: "",
  source: "",
  target: "",
  second: "",
  recording: "",
};

/** Values that a link may carry; of anything else in it the usual value is taken. */
const choices: Partial<Record<keyof State, string[]>> = {
  attn: ["", "encoder", "decoder", "cross"],
  show: ["weights", "scores", "mask"],
  measure: ["attention", "values", "contribution"],
  ends: ["raw", "without"],
  scale: ["linear", "log"],
  view: ["matrix", "links"],
  theme: ["", "light", "dark"],
};

function read(hash: string): State {
  const state: State = { ...usual, src: [], tgt: [] };
  const record = state as unknown as Record<string, unknown>;
  for (const [key, text] of new URLSearchParams(hash.replace(/^#/, ""))) {
    if (!Object.hasOwn(usual, key)) continue;
    const known = choices[key as keyof State];
    const before = record[key];
    if (Array.isArray(before))
      record[key] = text
        .split(".")
        .map(Number)
        .filter((n) => Number.isSafeInteger(n) && n >= 0);
    else if (typeof before === "number") record[key] = Math.max(0, Math.trunc(Number(text)) || 0);
    else if (!known || known.includes(text)) record[key] = text;
  }
  return state;
}

/** A word of an address that is not understood, and what could stand there. */
export interface Misread {
  key: string;
  value: string;
  known: string[] | null;
}

/** What an address says in vain: keys that there are not, and values that a key does not have. */
export function misread(hash: string): Misread[] {
  const all = [...new URLSearchParams(hash.replace(/^#/, ""))];
  return all.flatMap(([key, value]): Misread[] => {
    if (!Object.hasOwn(usual, key)) return [{ key, value, known: null }];
    const known = choices[key as keyof State];
    return known && !known.includes(value) ? [{ key, value, known: known.filter((one) => one !== "") }] : [];
  });
}

function written(state: State): string {
  const parameters = new URLSearchParams();
  for (const key of Object.keys(usual) as (keyof State)[]) {
    const value = state[key];
    const text = Array.isArray(value) ? value.join(".") : String(value);
    if (text !== String(usual[key])) parameters.set(key, text);
  }
  return parameters.toString();
}

export const state: State = read(location.hash);

interface Listener {
  keys: (keyof State)[];
  act: () => void;
}

const listeners = new Set<Listener>();

/** What was drawn together is forgotten together: who listened for it. */
export class Scope {
  private static current: Scope | null = null;
  private ends: (() => void)[] = [];

  /** Forgets what was drawn before, and draws. */
  draw(act: () => void): void {
    for (const end of this.ends.splice(0)) end();
    const outer = Scope.current;
    Scope.current = this;
    try {
      act();
    } finally {
      Scope.current = outer;
    }
  }

  /** Remembers how to forget something, where something is being drawn. */
  static atEnd(end: () => void): void {
    Scope.current?.ends.push(end);
  }
}

/** Acts now, and whenever one of these changes. */
export function on(keys: (keyof State)[], act: () => void): void {
  const listener = { keys, act };
  listeners.add(listener);
  Scope.atEnd(() => listeners.delete(listener));
  act();
}

function tell(changed: (keyof State)[]): void {
  for (const listener of [...listeners]) {
    if (listeners.has(listener) && listener.keys.some((key) => changed.includes(key))) listener.act();
  }
}

export function set(patch: Partial<State>): void {
  const changed = (Object.keys(patch) as (keyof State)[]).filter(
    (key) => String(patch[key]) !== String(state[key]),
  );
  if (changed.length === 0) return;
  Object.assign(state, patch);
  history.replaceState(null, "", `#${written(state)}`);
  tell(changed);
}

addEventListener("hashchange", () => {
  const next = read(location.hash);
  const changed = (Object.keys(usual) as (keyof State)[]).filter(
    (key) => String(next[key]) !== String(state[key]),
  );
  Object.assign(state, next);
  tell(changed);
});
