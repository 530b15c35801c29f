// The verdict: each check of the doctor, the worst first, with its number, its threshold and the tensor that it is about.

import { live, report, runs } from "../context.ts";
import { copyButton, counted, h, own, visible } from "../dom.ts";
import { tensorLink } from "../go.ts";
import { csvButton } from "../save.ts";
import type { Finding, Measure } from "../types.ts";
import { measureWords, numberWords, unitOf, unitOfRule } from "../words.ts";

type Verdict = "fail" | "warn" | "info" | "pass" | "not checked";

interface Check {
  rule: string;
  verdict: Verdict;
  number: number | null;
  threshold: number | null;
  unit: string;
  /** The name of the measure whose number it is, where that is not a finding's. */
  measure: string | null;
  node: string | null;
  slice: string | null;
  words: string;
  findings: Finding[];
  measures: Measure[];
}

const ORDER: Verdict[] = ["fail", "warn", "info", "pass", "not checked"];
const OF_SEVERITY = { error: "fail", warning: "warn", info: "info" } as const;
const SIGNS: Record<Verdict, string> = { fail: "✕", warn: "!", info: "i", pass: "✓", "not checked": "–" };

function checks(): Check[] {
  const doctor = report.doctor;
  if (!doctor) return [];
  const checked = doctor.checked.map((rule): Check => {
    const findings = doctor.findings.filter((finding) => finding.rule === rule);
    const worst = findings[0];
    const measures = doctor.measures.filter((measure) => measure.rule === rule);
    if (worst) {
      const words = findings.map((finding) => finding.evidence).join("; ");
      const unit = unitOfRule(rule, measures[0]?.name);
      const verdict = OF_SEVERITY[worst.severity];
      const place = placeOf(worst);
      return { ...pick(worst), ...place, unit, measure: null, rule, verdict, words, findings, measures };
    }
    const told = measures.find((measure) => measure.words) ?? measures[0];
    const none = { number: null, threshold: null, node: null, slice: null };
    return {
      ...(told ? pick(told) : none),
      unit: told ? unitOf(told.name) : "",
      measure: told?.name ?? null,
      rule,
      verdict: "pass",
      words: told?.words ?? "nothing found",
      findings,
      measures,
    };
  });
  const skipped = doctor.not_checked.map(({ rule, why, how }): Check => ({
    rule,
    verdict: "not checked",
    number: null,
    threshold: null,
    unit: "",
    measure: null,
    node: null,
    slice: null,
    words: `${why}. ${how}`,
    findings: [],
    measures: [],
  }));
  return [...checked, ...skipped].sort((a, b) => ORDER.indexOf(a.verdict) - ORDER.indexOf(b.verdict));
}

function pick({
  number,
  threshold,
  node,
  slice,
}: Finding | Measure): Pick<Check, "number" | "threshold" | "node" | "slice"> {
  return { number, threshold, node, slice };
}

/** The tensor that a finding is about. One about many has the number of the worst, whose measure says which that is. */
function placeOf(finding: Finding): Pick<Finding, "node" | "slice"> {
  if (finding.node !== null) return finding;
  const isOfIt = (measure: Measure) =>
    measure.rule === finding.rule && measure.node !== null && measure.number === finding.number;
  const { node, slice } = report.doctor?.measures.find(isOfIt) ?? finding;
  return { node, slice };
}

/** The place of the verdict while the doctor still looks at the model. */
export function waitingPart(): { section: HTMLElement; tell: (words: string) => void } {
  const words = h(
    "p",
    { class: "muted", role: "status" },
    "The doctor looks at the model; its verdict appears here.",
  );
  const tell = (text: string) => (words.textContent = visible(text));
  return { section: h("section", { id: "verdict" }, h("h2", {}, "Verdict"), words), tell };
}

export function verdictPart(): HTMLElement | null {
  const all = checks();
  if (!report.doctor || all.length === 0) return null;
  const counts = ORDER.map((verdict) => ({
    verdict,
    count: all.filter((check) => check.verdict === verdict).length,
  })).filter(({ count }) => count > 0);
  const item = (check: Check) => {
    const link = check.node ? tensorLink(check.node, check.slice) : null;
    const what = check.measure ? `${measureWords(check.measure)}: ` : "";
    const numbers =
      check.number === null ? "" : what + numberWords(check.number, check.threshold, check.unit);
    const more = check.findings.map((finding) => {
      const { node, slice } = placeOf(finding);
      return h(
        "li",
        {},
        node ? tensorLink(node, slice) : "",
        " ",
        finding.number === null ? "" : `${numberWords(finding.number, finding.threshold, check.unit)}: `,
        visible(finding.evidence),
        h("br"),
        h("em", {}, visible(finding.try_next)),
        " ",
        copyButton(finding.explain),
      );
    });
    const measured = check.measures.map((measure) =>
      h(
        "li",
        {},
        measure.node
          ? tensorLink(measure.node, measure.slice)
          : measure.slice
            ? h("code", {}, own(measure.slice))
            : "",
        ` ${measureWords(measure.name)}: ${numberWords(measure.number, measure.threshold, unitOf(measure.name))}`,
      ),
    );
    return h(
      "li",
      { class: `check ${check.verdict.replace(" ", "-")}`, "data-rule": check.rule },
      h("span", { class: "sign", "aria-hidden": "true" }, SIGNS[check.verdict]),
      h(
        "div",
        {},
        h("strong", {}, check.rule),
        " ",
        h("span", { class: "verdict" }, check.verdict),
        " ",
        numbers,
        " ",
        link,
        h("p", {}, visible(check.words)),
        more.length > 0 ? h("details", {}, h("summary", {}, "what to do"), h("ul", {}, ...more)) : null,
        measured.length > 0
          ? h(
              "details",
              { class: "measured" },
              h("summary", {}, `${counted(measured.length, "measure")}`),
              h("ul", {}, ...measured),
            )
          : null,
      ),
    );
  };
  const [bad, good] = [
    all.filter((check) => !["pass", "not checked"].includes(check.verdict)),
    all.filter((check) => ["pass", "not checked"].includes(check.verdict)),
  ];
  const rows = () => [
    ["rule", "verdict", "number", "threshold", "unit", "node", "slice", "words"],
    ...all.map((check) => [
      check.rule,
      check.verdict,
      check.number,
      check.threshold,
      check.unit,
      check.node,
      check.slice,
      check.words,
    ]),
  ];
  const measureRows = () => [
    ["rule", "measure", "number", "unit", "threshold", "node", "slice"],
    ...all
      .flatMap((check) => check.measures)
      .map(({ rule, name, number, threshold, node, slice }) => [
        rule,
        measureWords(name),
        number,
        unitOf(name),
        threshold,
        node,
        slice,
      ]),
  ];
  return h(
    "section",
    { id: "verdict" },
    h("h2", {}, "Verdict"),
    h(
      "div",
      { class: "strip-of-verdicts", role: "list", "aria-label": "verdicts" },
      ...counts.map(({ verdict, count }) =>
        h(
          "span",
          { class: `pill ${verdict.replace(" ", "-")}`, role: "listitem" },
          `${SIGNS[verdict]} ${count} ${verdict}`,
        ),
      ),
    ),
    h(
      "p",
      { class: "muted" },
      `${visible(report.doctor.basis.charAt(0).toUpperCase() + report.doctor.basis.slice(1))}.`,
      runs.length > 0 ? "" : live ? " There is no run yet." : " There is no run.",
    ),
    bad.length > 0 ? h("ul", { class: "checks" }, ...bad.map(item)) : null,
    h(
      "details",
      { class: "passed" },
      h("summary", {}, `${good.length} checks that found nothing, or were not made`),
      h("ul", { class: "checks" }, ...good.map(item)),
    ),
    h("div", { class: "row" }, csvButton("verdicts", rows), csvButton("measures", measureRows)),
  );
}
