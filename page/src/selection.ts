// One selection of source and target tokens, highlighted everywhere: locked tokens live in the address, the one under the
// pointer does not.

import { hasSource } from "./context.ts";
import { counted, h, isolated, own, visible } from "./dom.ts";
import { on, Scope, set, state } from "./state.ts";
import type { Run, Side, Token } from "./types.ts";

export interface Hovered {
  side: Side;
  at: number;
}

let hovered: Hovered | null = null;
const drawers = new Set<() => void>();

/** Draws again when the selection changes. */
export function onSelection(draw: () => void): void {
  drawers.add(draw);
  Scope.atEnd(() => drawers.delete(draw));
}

export function hover(next: Hovered | null): void {
  if (next?.side === hovered?.side && next?.at === hovered?.at) return;
  hovered = next;
  mark();
}

export function lock(side: Side, at: number): void {
  const key = side === "source" ? "src" : "tgt";
  const locked = state[key];
  set({
    [key]: locked.includes(at) ? locked.filter((n) => n !== at) : [...locked, at].sort((a, b) => a - b),
  });
}

/** The tokens that are shown as selected: the one under the pointer, else the locked ones. */
export function selected(side: Side): number[] {
  const locked = side === "source" ? state.src : state.tgt;
  return hovered?.side === side && !locked.includes(hovered.at) ? [...locked, hovered.at] : locked;
}

function mark(): void {
  for (const side of ["source", "target"] as const) {
    const locked = side === "source" ? state.src : state.tgt;
    const all = selected(side);
    for (const token of document.querySelectorAll<HTMLElement>(`[data-side="${side}"]`)) {
      const at = Number(token.dataset.at);
      token.classList.toggle("selected", all.includes(at));
      if (token.hasAttribute("aria-pressed")) token.setAttribute("aria-pressed", String(locked.includes(at)));
    }
  }
  for (const draw of drawers) draw();
}

export function watchSelection(): void {
  on(["src", "tgt"], mark);
}

export function labels(run: Run, side: Side): string[] | null {
  return tokensOf(run, side)?.map(label) ?? null;
}

function tokensOf(run: Run, side: Side): Token[] | undefined {
  const rows = side === "source" ? run.trace.tokens.source : run.trace.tokens.target;
  return rows?.[run.row];
}

/** What a side is called: a decoder alone has a prompt. */
export function sideName(side: Side): string {
  return side === "target" && !hasSource ? "prompt" : side;
}

export function label(token: Token): string {
  return token.padding ? "(pad)" : (token.piece ?? String(token.id));
}

/** More tokens than this are reached through the matrix. */
const MOST = 300;

/** The tokens of a side as buttons: pointing at one highlights it everywhere, pressing it locks it. */
export function tokenStrip(run: Run, side: Side): HTMLElement | null {
  const read = tokensOf(run, side);
  if (!read) return null;
  const all = read.map((one, at) => ({ text: label(one), at })).filter(({ at }) => !read[at]?.padding);
  const padding = read.length - all.length;
  const token = ({ text, at }: { text: string; at: number }) => {
    const element = h(
      "button",
      {
        type: "button",
        class: "token",
        "data-side": side,
        "data-at": at,
        "aria-pressed": "false",
        onclick: () => lock(side, at),
        onpointerenter: () => hover({ side, at }),
        onpointerleave: () => hover(null),
        onfocus: () => hover({ side, at }),
        onblur: () => hover(null),
      },
      own(text),
    );
    element.setAttribute("aria-label", `${sideName(side)} token ${at}: ${isolated(visible(text))}`);
    return element;
  };
  const strip = h(
    "div",
    { class: "tokens", role: "group", "aria-label": `${sideName(side)} tokens` },
    ...all.slice(0, MOST).map(token),
  );
  if (all.length > MOST) strip.append(h("span", { class: "muted" }, ` … ${all.length - MOST} more`));
  if (padding > 0)
    strip.append(h("span", { class: "muted" }, ` and ${counted(padding, "position")} of padding`));
  return h("div", { class: "strip" }, h("span", { class: "muted" }, `${sideName(side)} `), strip);
}
