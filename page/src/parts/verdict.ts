// The verdict: each check of the doctor, the worst first, with its number, its threshold and the tensor that it is about.

import { report, runs } from "../context.ts";
import { button, copyButton, h, number, own, visible } from "../dom.ts";
import { csvButton } from "../save.ts";
import { openNode } from "../go.ts";
import type { Finding, Measure } from "../types.ts";

type Verdict = "fail" | "warn" | "info" | "pass" | "not checked";

interface Check {
  rule: string;
  verdict: Verdict;
  number: number | null;
  threshold: number | null;
  node: string | null;
  slice: string | null;
  words: string;
  findings: Finding[];
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
    if (worst) {
      const words = findings.map((finding) => finding.evidence).join("; ");
      return { ...pick(worst), rule, verdict: OF_SEVERITY[worst.severity], words, findings };
    }
    const measures = doctor.measures.filter((measure) => measure.rule === rule);
    const told = measures.find((measure) => measure.words) ?? measures[0];
    const none = { number: null, threshold: null, node: null, slice: null };
    return {
      ...(told ? pick(told) : none),
      rule,
      verdict: "pass",
      words: told?.words ?? "nothing found",
      findings,
    };
  });
  const skipped = doctor.not_checked.map(({ rule, why, how }): Check => ({
    rule,
    verdict: "not checked",
    number: null,
    threshold: null,
    node: null,
    slice: null,
    words: `${why}. ${how}`,
    findings: [],
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
    const link = check.node
      ? button(
          `${check.node}${check.slice ? `, ${check.slice}` : ""}`,
          () => openNode(check.node as string, check.slice),
          { class: "link" },
        )
      : null;
    const numbers =
      check.number === null
        ? ""
        : `${number(check.number)}${check.threshold === null ? "" : ` (threshold ${number(check.threshold)})`}`;
    const more = check.findings.map((finding) =>
      h(
        "li",
        {},
        finding.node ? h("code", {}, own(`${finding.node}${finding.slice ? ` ${finding.slice}` : ""}`)) : "",
        " ",
        visible(finding.evidence),
        h("br"),
        h("em", {}, visible(finding.try_next)),
        " ",
        copyButton(finding.explain),
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
      ),
    );
  };
  const [bad, good] = [
    all.filter((check) => !["pass", "not checked"].includes(check.verdict)),
    all.filter((check) => ["pass", "not checked"].includes(check.verdict)),
  ];
  const rows = () => [
    ["rule", "verdict", "number", "threshold", "node", "slice", "words"],
    ...all.map((check) => [
      check.rule,
      check.verdict,
      check.number,
      check.threshold,
      check.node,
      check.slice,
      check.words,
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
      runs.length === 0 ? " There is no run." : "",
    ),
    bad.length > 0 ? h("ul", { class: "checks" }, ...bad.map(item)) : null,
    h(
      "details",
      { class: "passed" },
      h("summary", {}, `${good.length} checks that found nothing, or were not made`),
      h("ul", { class: "checks" }, ...good.map(item)),
    ),
    csvButton("verdicts", rows),
  );
}
