// The difference from another run: the error of every node in the order of computation, and where they part.

import { report } from "../context.ts";
import { COLOURS, chart } from "../curves.ts";
import { button, counted, h, number, own, shape, visible } from "../dom.ts";
import { openNode } from "../go.ts";
import { table } from "../table.ts";
import type { DiffNode } from "../types.ts";

export function diffPart(): HTMLElement | null {
  const diff = report.diff;
  if (!diff) return null;
  const first = diff.first_divergence;
  const cell = first?.cell;
  const words = first
    ? h(
        "div",
        { class: "check fail" },
        h(
          "div",
          {},
          h("strong", {}, "first divergence: "),
          button(first.node, () => openNode(first.node), { class: "link" }),
          ` a ${first.kind}`,
          first.sentence ? h("p", {}, visible(first.sentence)) : "",
          cell
            ? h(
                "p",
                {},
                `largest difference ${number(first.max_abs)} at (${cell.at.join(", ")}): A ${number(cell.a, 8)}, B ${number(cell.b, 8)}`,
              )
            : "",
          first.reads.length > 0 ? h("p", { class: "muted" }, `its inputs: ${first.reads.join(", ")}`) : "",
        ),
      )
    : diff.inputs === "same"
      ? h("p", { class: "check pass" }, "The two runs agree, up to rounding.")
      : h(
          "p",
          { class: "check fail" },
          `The two runs did not read the same input. ${visible(diff.input_difference?.sentence ?? "")}`,
        );
  const at = diff.nodes.findIndex((node) => node.state === "first");
  const errors = diff.nodes.map((node, i): [number, number] => [i, node.relative ?? NaN]);
  const compared = errors.filter(([, error]) => Number.isFinite(error));
  const isEqual = compared.every(([, error]) => error === 0);
  const name = "relative error of each node, in the order of computation";
  const missing = diff.nodes.length - compared.length;
  const notMeasured =
    missing > 0
      ? h(
          "p",
          { class: "muted" },
          `${counted(missing, "node")} without a finite relative error: see the table.`,
        )
      : null;
  return h(
    "section",
    { id: "diff" },
    h("h2", {}, "Difference"),
    h(
      "p",
      {},
      "A: ",
      own(`${diff.a.path} (${diff.a.kind}, ${diff.a.tensors} tensors)`),
      h("br"),
      "B: ",
      own(`${diff.b.path} (${diff.b.kind}, ${diff.b.tensors} tensors)`),
    ),
    words,
    compared.length === 0
      ? h("p", { class: "muted" }, `${name}: nothing was measured, because no node is in both runs.`)
      : isEqual
        ? h(
            "p",
            { class: "muted" },
            `${name}: no value differs in the ${counted(compared.length, "node")} that both runs have, so that there is nothing to draw.`,
          )
        : chart(
            name,
            [
              {
                name: "largest difference over the largest value",
                points: errors,
                colour: COLOURS[0] as string,
              },
              ...(at >= 0
                ? [
                    {
                      name: `first divergence: ${diff.nodes[at]?.node}`,
                      points: [errors[at] as [number, number]],
                      colour: COLOURS[1] as string,
                    },
                  ]
                : []),
            ],
            { log: true, xTitle: "node, in the order of computation", yTitle: "relative error" },
          ),
    notMeasured,
    table<DiffNode>(
      "difference of each node",
      [
        {
          title: "node",
          head: true,
          cell: (node) => button(node.node, () => openNode(node.node), { class: "link" }),
        },
        {
          title: "state",
          cell: (node) =>
            h(
              "span",
              {
                class: `pill ${{ same: "pass", rounding: "pass", first: "fail", after: "warn", apart: "warn" }[node.state]}`,
              },
              node.state === "first" ? "first divergence" : node.state,
            ),
        },
        { title: "shape", cell: (node) => shape(node.shape) },
        {
          title: "largest difference",
          cell: (node) => number(node.max_abs),
          value: (node) => node.max_abs,
          numeric: true,
        },
        {
          title: "relative",
          cell: (node) => number(node.relative),
          value: (node) => node.relative,
          numeric: true,
        },
        { title: "at", cell: (node) => (node.cell ? node.cell.at.join(", ") : "") },
        {
          title: "A there",
          cell: (node) => number(node.cell?.a, 8),
          value: (node) => node.cell?.a,
          numeric: true,
        },
        {
          title: "B there",
          cell: (node) => number(node.cell?.b, 8),
          value: (node) => node.cell?.b,
          numeric: true,
        },
      ],
      diff.nodes,
      (node, row) => row.classList.toggle("first", node.state === "first"),
    ),
  );
}
