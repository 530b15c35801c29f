// Escape closes what was opened last: a cell, a node, a layer, a tensor.

import { on, set, type State, state } from "./state.ts";

const PANELS = ["cell", "node", "layer", "tensor"] as const satisfies (keyof State)[];
type Panel = (typeof PANELS)[number];

export function closeByEscape(): void {
  // Those that are open, in the order in which they were opened.
  const open: Panel[] = [];
  for (const panel of PANELS) {
    on([panel], () => {
      const at = open.indexOf(panel);
      if (at !== -1) open.splice(at, 1);
      if (state[panel] !== "") open.push(panel);
    });
  }
  document.addEventListener("keydown", (event) => {
    const target = event.target as HTMLElement;
    const isTyping = ["INPUT", "SELECT", "TEXTAREA"].includes(target.tagName);
    if (event.key !== "Escape" || event.defaultPrevented || isTyping) return;
    const within = target.closest("section")?.id;
    const here = within === "attention" ? "cell" : within === "tensors" ? "tensor" : undefined;
    const last = open.find((panel) => panel === here) ?? open.at(-1);
    if (last) set({ [last]: "" });
  });
}
