// What the doctor found remarkable about a head.

import { report } from "./context.ts";
import { number } from "./dom.ts";
import type { Attention, HeadBadge } from "./types.ts";

/** A name for a thumbnail, and what it means. */
export const BADGES: Record<HeadBadge["badge"], [string, string]> = {
  sink: ["sink", "much of its weight is on one position"],
  dead: ["dead", "it adds next to nothing"],
  duplicate: ["duplicate", "another head does the same"],
  near_uniform: ["near-uniform", "its weights are nearly the same for all keys"],
};

export function badgesOf(attention: Attention, head: number): HeadBadge[] {
  return (report.badges ?? []).filter((badge) => badge.attention === attention.path && badge.head === head);
}

export function badgeWords(badge: HeadBadge): string {
  const other = badge.other === null ? "" : ` (head ${badge.other})`;
  return `${BADGES[badge.badge][0]}: ${BADGES[badge.badge][1]}${other}, ${number(badge.number)}, threshold ${number(badge.threshold)}`;
}
