// Training: curves, and what attention did while the model learned.

import { report } from "../context.ts";
import { COLOURS, type Line, chart } from "../curves.ts";
import { h, own, visible } from "../dom.ts";
import type { Metric } from "../types.ts";

export function trainingPart(): HTMLElement | null {
  const training = report.training;
  if (!training) return null;
  const of = (kind: Metric["kind"]) => training.metrics.filter((metric) => metric.kind === kind);
  const line = (
    name: string,
    metrics: Metric[],
    pick: (metric: Metric) => number | null | undefined,
    i: number,
    dash?: string,
  ): Line => ({
    name,
    points: metrics.map((metric): [number, number] => [metric.step, pick(metric) ?? NaN]),
    colour: COLOURS[i % COLOURS.length] as string,
    dash,
  });
  const [train, validation, monitor] = [of("train"), of("validation"), of("monitor")];
  // A line of training is about the steps since the line before it.
  const steps = train.map(({ step }, i) => step - (train[i - 1]?.step ?? 0)).filter((count) => count > 0);
  const most = steps.reduce((one, other) => Math.max(one, other), 0);
  const ofTrain =
    most > 1
      ? `train: each point the mean of up to ${most} steps, drawn at the last of them`
      : "train: each step";
  const ofValidation = "validation: the model after the step";
  const both = (name: string, key: "nll" | "accuracy") =>
    chart(
      name,
      [line(ofTrain, train, (m) => m[key], 0), line(ofValidation, validation, (m) => m[key], 1, "6 3")],
      { xTitle: "step", yTitle: name },
    );
  const paths = [
    ...new Set(monitor.flatMap((metric) => metric.attentions?.map((attention) => attention.path) ?? [])),
  ];
  const mean = (values: (number | null)[]) => {
    const known = values.filter((value): value is number => value !== null);
    return known.length > 0 ? known.reduce((sum, x) => sum + x, 0) / known.length : NaN;
  };
  const ofAttention =
    (path: string, pick: (a: NonNullable<Metric["attentions"]>[number]) => number | null) =>
    (metric: Metric) => {
      const attention = metric.attentions?.find((a) => a.path === path);
      return attention ? pick(attention) : null;
    };
  const warnings = of("warning").map((warning) =>
    h("li", {}, `step ${warning.step}: ${visible(warning.says ?? "")}`),
  );
  return h(
    "section",
    { id: "training" },
    h("h2", {}, "Training"),
    h("p", { class: "muted" }, own(training.folder)),
    training.is_of_model
      ? null
      : h(
          "p",
          { class: "note" },
          `The weights of ${visible(report.model ?? "this model")} are neither the best nor the latest of this run: it is another model's, or they have changed since.`,
        ),
    warnings.length > 0 ? h("ul", { class: "note" }, ...warnings) : null,
    h(
      "div",
      { class: "charts" },
      both("negative log-likelihood, nats a target", "nll"),
      both("accuracy", "accuracy"),
      validation.some((metric) => metric.bleu != null)
        ? chart("BLEU", [line("validation", validation, (m) => m.bleu, 1, "6 3")], {
            xTitle: "step",
            yTitle: "BLEU",
          })
        : null,
      chart(
        "attention health: mean entropy of heads (1 is uniform)",
        paths.map((path, i) =>
          line(
            path,
            monitor,
            ofAttention(path, (a) => mean(a.entropy)),
            i,
          ),
        ),
        { xTitle: "step", yTitle: "entropy" },
      ),
      chart(
        "attention health: output over stream",
        paths.map((path, i) =>
          line(
            path,
            monitor,
            ofAttention(path, (a) => a.output_ratio),
            i,
          ),
        ),
        { xTitle: "step", yTitle: "ratio" },
      ),
      monitor.some((metric) => metric.source_cost != null)
        ? chart(
            "what another source costs, nats a target",
            [line("source cost", monitor, (m) => m.source_cost, 2)],
            { xTitle: "step", yTitle: "nats" },
          )
        : null,
    ),
  );
}
