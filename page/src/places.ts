// Where the names in drawings lead: to nodes, layers, and parts of layers. Names are made here from what the report says of its
// nodes; none is taken apart.

import { report } from "./context.ts";
import type { FlowNode } from "./types.ts";

/** Sublayers, by their names in the report. */
export const SUBLAYERS: Record<string, string> = {
  self_attn: "self-attention",
  cross_attn: "cross-attention",
  ffn: "feed-forward",
};

/** Layers of a stack, or one part of them. */
export interface Layers {
  stack: string;
  first: number;
  last: number;
  part: string | null;
}

/** What a box stands for. A step of layers that are drawn once is a step of any of them. */
export type Target = { node: FlowNode; anyLayer: boolean } | { layers: Layers };

const nodes = new Map(report.flow.nodes.map((node) => [node.path, node]));

export function nodeAt(path: string): FlowNode | undefined {
  return nodes.get(path);
}

/** The node of this path, or the one that owns the weight of this path. */
export function ownerOf(path: string): FlowNode | undefined {
  return nodes.get(path) ?? report.flow.nodes.find((node) => path.startsWith(`${node.path}.`));
}

/** `decoder.0` of a node in a layer. */
export function layerOf(path: string): string {
  const node = nodes.get(path);
  return node && node.layer !== null ? layerName(node.stack, node.layer) : "";
}

export function layerName(stack: string | null, layer: number | string): string {
  return `${stack}.${layer}`;
}

/** The layers of a stack. */
export function layersOf(stack: string): number[] {
  const all = report.flow.nodes.filter((node) => node.stack === stack && node.layer !== null);
  return [...new Set(all.map((node) => node.layer as number))];
}

/** The same step in another layer. */
export function inLayer(node: FlowNode, layer: string): FlowNode | undefined {
  if (node.layer === null) return node;
  const isSame = (other: FlowNode) =>
    other.stack === node.stack && other.part === node.part && other.step === node.step;
  return report.flow.nodes.find(
    (other) => isSame(other) && layerName(other.stack, other.layer ?? "") === layer,
  );
}

/** What each box stands for, by its name; the groups are layers that are drawn once. */
export function targets(groups: Layers[]): Map<string, Target> {
  const all = new Map<string, Target>();
  for (const node of report.flow.nodes) {
    all.set(node.path, { node, anyLayer: false });
    if (node.layer === null || node.stack === null) continue;
    const within = node.part in SUBLAYERS ? `${node.part}.${node.step}` : node.step;
    const general = `${layerName(node.stack, "N")}.${within}`;
    if (!all.has(general)) all.set(general, { node, anyLayer: true });
    const layers = { stack: node.stack, first: node.layer, last: node.layer };
    const name = layerName(node.stack, node.layer);
    all.set(name, { layers: { ...layers, part: null } });
    if (node.part in SUBLAYERS) all.set(`${name}.${node.part}`, { layers: { ...layers, part: node.part } });
  }
  for (const { stack, first, last } of groups) {
    if (first < last) {
      all.set(layerName(stack, `${first}–${last}`), { layers: { stack, first, last, part: null } });
    }
  }
  return all;
}
