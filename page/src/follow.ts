// Which part of the page is read: it stands in the address, so that a link opens there.

import { scrollTo } from "./go.ts";
import { set, state } from "./state.ts";

/** How long the page must rest before its part is written into the address, in milliseconds. */
const REST = 100;

/** Follows the reader from part to part, and goes to the part that a changed address names. */
export function followParts(main: HTMLElement): void {
  let resting = 0;
  const follow = () => {
    clearTimeout(resting);
    resting = window.setTimeout(() => set({ part: partInView(main) }), REST);
  };
  addEventListener("scroll", follow, { passive: true });
  addEventListener("hashchange", () => {
    if (state.part && state.part !== partInView(main)) scrollTo(state.part);
  });
}

/** The part whose heading was passed last; none at the top of the page. */
function partInView(main: HTMLElement): string {
  if (scrollY < 4) return "";
  const sections = [...main.querySelectorAll<HTMLElement>("section[id]")];
  const top = (section: HTMLElement) => section.getBoundingClientRect().top;
  // The part that was gone to stays while its heading is near the top; at the end of the page, while it is seen at all, because
  // the last parts cannot come to the top.
  const isAtEnd = scrollY + innerHeight >= document.documentElement.scrollHeight - 4;
  const near = innerHeight / (isAtEnd ? 1 : 3);
  const gone = sections.find((section) => section.id === state.part);
  if (gone && top(gone) >= -4 && top(gone) < near) return gone.id;
  return sections.filter((section) => top(section) < innerHeight / 3).at(-1)?.id ?? "";
}
