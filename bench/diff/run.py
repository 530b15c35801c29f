"""Runs every model through torch, with and without planted bugs, and counts how often `attnscope diff` is right.

run.py BINARY [--quick] [--models whisper,t5,bart,marian] [--only TEXT] [--out FILE] [--work FOLDER]
"""

import argparse
import shutil
import sys
import time
import traceback
from pathlib import Path

import torch

import bugs_attention
import bugs_layers
import bugs_weights
import hooks
import inputs
import models
import table
import verdict
from plant import Place
from variants import ON_CUDA, VARIANTS

BUGS = bugs_attention.BUGS + bugs_layers.BUGS + bugs_weights.BUGS


def run(subject, model, variant=None, given=None):
    """Every module's output of one pass, stored as f32, as people store it."""
    torch.manual_seed(0)
    context = variant.context() if variant else None
    weights = bool(variant and variant.attention_weights)
    with torch.no_grad(), hooks.recording(model, weights) as kept:
        if context is None:
            logits = models.forward(model, given or subject.inputs)
        else:
            with context:
                logits = models.forward(model, given or subject.inputs)
    kept["logits"] = logits
    return {name: (value.float() if value.is_floating_point() else value).cpu() for name, value in kept.items()}


class Bench:
    def __init__(self, binary, work, only, device):
        self.binary, self.work, self.only, self.device = binary, work, only, device
        self.rows, self.subjects = [], []

    def fresh(self, subject, implementation="eager"):
        return subject.fresh(implementation).to(self.device)

    def wanted(self, *words):
        return not self.only or self.only in " ".join(words)

    def case(self, subject, kind, site, make):
        """One row: `make(file)` writes the dump and gives what judges the report, and diff's further arguments."""
        if not self.wanted(subject.name, kind, site):
            return
        file = self.work / "dump.pt"
        try:
            ours, judge, arguments = make(file)
            start = time.monotonic()
            code, report, error = verdict.diff(self.binary, ours, file, *arguments)
            outcome = judge(code, report) if report else verdict.Outcome("failed", error[:200])
            outcome.seconds = time.monotonic() - start
        except Exception as error:  # A case that cannot be made is a row of its own; the others go on.
            traceback.print_exc()
            outcome = verdict.Outcome("failed", f"{type(error).__name__}: {error}"[:200])
        file.unlink(missing_ok=True)
        self.rows.append((subject.name, kind, site, outcome))
        print(
            f"{subject.name:16} {kind:45} {site:22} {outcome.what:16} {outcome.seconds:5.1f} s  {outcome.said}",
            flush=True,
        )

    def bug_free(self, subject, variant):
        def make(file):
            torch.save(run(subject, variant.change(self.fresh(subject, variant.implementation)), variant), file)
            return subject.trace, verdict.of_bug_free, variant.arguments

        self.case(subject, variant.name, "bug-free", make)

    def other_input(self, subject, name, given):
        def make(file):
            torch.save(run(subject, self.fresh(subject), given=given), file)
            return subject.trace, verdict.of_other_input, ()

        self.case(subject, name, "other input", make)

    def planted(self, subject, bug, site, right, without_model=False):
        def make(file):
            model = self.fresh(subject)
            bug.plant(Place(model, subject, site))
            dump = run(subject, model)
            truth, size = verdict.first_changed(right, dump)
            if truth is None:
                raise ValueError("the planted bug changes nothing")
            torch.save(dump, file)
            ours = self.work / "right.pt" if without_model else subject.trace
            if without_model:
                torch.save(right, ours)

            def judge(code, report):
                outcome = verdict.of_planted(subject.scheme, bug, truth, code, report)
                if outcome.what == "missed":
                    outcome.what = "hidden" if size < verdict.HIDDEN else "missed"
                    outcome.said += f"; {truth} is off by {size:.1e} of its largest value"
                return outcome

            return ours, judge, ()

        self.case(subject, bug.kind, f"{site}, two dumps" if without_model else site, make)


def sites_of(subject, bug, number, count):
    """`count` of the sites, others for each bug, so that every depth gets its share."""
    sites = bug.sites(subject)
    if not sites:
        return []
    step = max(1, len(sites) // count)
    return sorted({sites[(number + i * step) % len(sites)] for i in range(min(count, len(sites)))})


def measure(bench, subject, args):
    shutil.rmtree(bench.work / f"{subject.name}-trace", ignore_errors=True)
    subject.make_trace(bench.binary, bench.work)
    variants = ON_CUDA if bench.device == "cuda" else VARIANTS
    for variant in variants[:3] if args.quick else variants:
        if not (variant.short_inputs and subject.name.startswith("Whisper")):
            bench.bug_free(subject, variant)
    for name, given in inputs.others(subject):
        bench.other_input(subject, name, given)
    right = run(subject, bench.fresh(subject))
    for number, bug in enumerate(BUGS):
        # A quick run puts each bug into one model that can have it.
        able = [m.name for m in bench.subjects if bug.sites(m)]
        if subject.name not in able or args.quick and able[number % len(able)] != subject.name:
            continue
        sites = args.sites or (1 if args.quick or subject.name.startswith("Whisper") else 2)
        for site in sites_of(subject, bug, number, sites):
            bench.planted(subject, bug, site, right)
        if not args.quick and number % 3 == 0:
            for site in sites_of(subject, bug, number + 1, 1):
                bench.planted(subject, bug, site, right, without_model=True)
    shutil.rmtree(subject.trace)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("binary", type=lambda path: Path(path).resolve())
    parser.add_argument("--quick", action="store_true", help="each bug once, three variants")
    parser.add_argument("--models", default=",".join(models.MODELS))
    parser.add_argument("--only", default="", help="cases whose model, kind or site contains this")
    parser.add_argument("--sites", type=int, help="sites for each bug and model")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where torch runs")
    parser.add_argument("--out", type=Path, help="where the table goes; standard output without it")
    parser.add_argument("--work", type=Path, default=models.HERE / ".work")
    args = parser.parse_args()
    torch.set_num_threads(2)
    args.work.mkdir(exist_ok=True)
    bench = Bench(args.binary, args.work, args.only, args.device)
    start = time.monotonic()
    for name in args.models.split(","):
        try:
            bench.subjects.append(models.MODELS[name](args.work))
        except models.Absent as absent:
            print(absent, file=sys.stderr)
    for subject in bench.subjects:
        measure(bench, subject, args)
        subject.pristine.clear()
    text = table.markdown(bench.rows, time.monotonic() - start)
    args.out.write_text(text) if args.out else print(text)


if __name__ == "__main__":
    main()
