#!/usr/bin/env python3
"""How often `attnscope doctor --text` accuses a healthy language model, and how often it finds a fault.

    bench/doctor/texts.py ATTNSCOPE SHARED WORK [--minutes N] [--only GROUP]

Every run is one process of ATTNSCOPE with one thread on a random sample of texts. Results go to WORK/texts.jsonl; a run that is there
already is not made again, so that the measurement can be continued. The table is printed at the end. Needs numpy and safetensors for
the damaged copies, and the models and data that CONTRIBUTING.md lists.
"""

import argparse
import gzip
import json
import random
import re
import subprocess
import time
from collections import Counter
from pathlib import Path

import damage
import numpy as np
from pairs import SETS, backwards, lines

MODELS = ["llama-tiny-en", "gpt2-tiny-en"]


def sample(shared, name, language, count, seed):
    all_lines = lines(shared, name, language)
    return [all_lines[i] for i in random.Random(seed).sample(range(len(all_lines)), count)]


def shuffled(text, dice):
    words = text.split()
    dice.shuffle(words)
    return " ".join(words)


def random_words(texts, dice):
    words = " ".join(texts).split()
    return [" ".join(dice.choice(words) for _ in text.split()) for text in texts]


def reviews(shared, count, seed):
    """Sentences of film reviews: the language of the model, and not its kind of text."""
    found = []
    with gzip.open(shared / "data/imdb/imdb-50k.jsonl.gz", "rt", encoding="utf-8") as file:
        for _, row in zip(range(500), file):
            text = re.sub("<[^>]*>", " ", json.loads(row)["text"])
            found += [s.strip() for s in re.split(r"(?<=[.!?])\s", text) if 8 < len(s.split()) < 30]
    return random.Random(seed).sample(found, count)


def code(count, seed):
    root = Path(__file__).resolve().parents[2]
    found = [row.strip() for file in sorted(root.glob("crates/*/src/*.rs")) for row in file.read_text().splitlines()]
    return random.Random(seed).sample([row for row in found if len(row) > 40], count)


# Texts of each kind; the models were trained on English captions.
KINDS = {
    "right": lambda shared, name, count, seed: sample(shared, name, "en", count, seed),
    "German": lambda shared, name, count, seed: sample(shared, name, "de", count, seed),
    "French": lambda shared, name, count, seed: sample(shared, name, "fr", count, seed),
    "words shuffled": lambda shared, name, count, seed: [
        shuffled(text, random.Random(seed)) for text in sample(shared, name, "en", count, seed)
    ],
    "words reversed": lambda shared, name, count, seed: [backwards(text) for text in sample(shared, name, "en", count, seed)],
    "random words": lambda shared, name, count, seed: random_words(
        sample(shared, name, "en", count, seed), random.Random(seed)
    ),
    "upper case": lambda shared, name, count, seed: [text.upper() for text in sample(shared, name, "en", count, seed)],
    "lower case": lambda shared, name, count, seed: [text.lower() for text in sample(shared, name, "en", count, seed)],
    "reviews": lambda shared, name, count, seed: reviews(shared, count, seed),
    "code": lambda shared, name, count, seed: code(count, seed),
}

# A config that is wrong about one field, and the value of the training.
WIRINGS = {
    "llama-tiny-en": [
        ("rotary_layout", "interleaved", "halves"),
        ("rotary_theta", "500000", 10_000),
        ("rotary_theta", "1000000", 10_000),
        ("rotary_share", "0.5", 1),
        ("rotary_scaling", '{"type":"linear","factor":4.0}', None),
        ("kv_sharing", "tile", "repeat"),
        ("norm_gain", "one_plus_weight", "weight"),
        ("window", "4", None),
        ("window", "8", None),
        ("score_cap", "1.0", None),
        ("logit_cap", "5.0", None),
        ("parallel_residual", "true", False),
        ("activation", "relu", "swish"),
        ("activation", "gelu", "swish"),
        ("score_scale", "none", "d_head"),
        ("score_scale", "d_model", "d_head"),
    ],
    "gpt2-tiny-en": [
        ("position_offset", "1", 0),
        ("parallel_residual", "true", False),
        ("activation", "relu", "gelu_tanh"),
        ("score_scale", "none", "d_head"),
    ],
}

LAYER = "model.layers.%d."


def reordered(names, order):
    def apply(tensors):
        for name in names:
            heads = tensors[name].reshape(-1, 32, tensors[name].shape[1])
            tensors[name] = np.ascontiguousarray(heads[:, order].reshape(tensors[name].shape))

    return apply


QK = [(LAYER % n) + f"self_attn.{x}_proj.weight" for n in range(2) for x in "qk"]
PAIRS = [row // 2 + 16 * (row % 2) for row in range(32)]
HALVES = [2 * (row % 16) + row // 16 for row in range(32)]


def exchanged(a, b):
    return lambda t: t.update({a: t[b], b: t[a]})


def layers_exchanged(tensors):
    for name in [n for n in tensors if n.startswith(LAYER % 0)]:
        other = name.replace(LAYER % 0, LAYER % 1)
        tensors[name], tensors[other] = tensors[other], tensors[name]


# Damaged weights of the Llama, with the repair that each asks for; None where no repair explains them.
WEIGHTS = {
    "q and k left in pairs": (reordered(QK, PAIRS), ("rotary_layout", "interleaved")),
    "q and k permuted twice": (reordered(QK, HALVES), "interleave"),
    "layers exchanged": (layers_exchanged, "swap_layers"),
    "gate and up of layer 1": (
        exchanged(LAYER % 1 + "mlp.gate_proj.weight", LAYER % 1 + "mlp.up_proj.weight"),
        "exchange",
    ),
    "k and v of layer 0": (
        exchanged(LAYER % 0 + "self_attn.k_proj.weight", LAYER % 0 + "self_attn.v_proj.weight"),
        "exchange",
    ),
    "q of layer 0 transposed": (damage.transposed(LAYER % 0 + "self_attn.q_proj.weight"), "transpose"),
    "out of layer 0 transposed": (damage.transposed(LAYER % 0 + "self_attn.o_proj.weight"), "transpose"),
    "v of layer 0 negated": (damage.scaled(LAYER % 0 + "self_attn.v_proj.weight", -1), "negate"),
    "heads of v of layer 0": (damage.rolled(LAYER % 0 + "self_attn.v_proj.weight", 32), "permute_heads"),
    "embeddings rolled": (damage.rolled("model.embed_tokens.weight", 1), "roll"),
    "noise of 20 %": (damage.noisy("model.", 0.2), None),
    "noise of 40 %": (damage.noisy("model.", 0.4), None),
}



def plan(only):
    """(group, model, kind, set, texts, seed) of every run, in an order that is random and always the same."""
    dice = random.Random(2)
    runs = []
    for seed in range(20):
        for model in MODELS:
            runs.append(("right texts", model, "right", dice.choice(SETS), dice.choice([20, 25, 40, 60]), seed))
    for seed in range(4):
        for model in MODELS:
            for kind in [k for k in KINDS if k != "right"]:
                runs.append(("ill-fitting texts", model, kind, dice.choice(SETS), dice.choice([20, 25, 40]), seed))
    for seed in range(2):
        for model, cases in WIRINGS.items():
            for n in range(len(cases)):
                runs.append(("wrong fields", model, str(n), dice.choice(SETS), dice.choice([40, 60]), seed))
        for name in WEIGHTS:
            runs.append(("damaged weights", "llama-tiny-en", name, dice.choice(SETS), 60, seed))
    runs = [run for run in runs if only in ("", run[0])]
    dice.shuffle(runs)
    return runs


def make(run, attnscope, shared, work):
    group, model, kind, name, count, seed = run
    texts = KINDS[kind if group in ("right texts", "ill-fitting texts") else "right"](shared, name, count, seed)
    file = work / "texts.txt"
    file.write_text("\n".join(texts), encoding="utf-8")
    folder, more = shared / "models" / model, []
    if group == "damaged weights":
        folder = work / f"{model} {kind}"
        if not folder.exists():
            damage.copy(shared / "models" / model, folder, weights=WEIGHTS[kind][0])
    if group == "wrong fields":
        field, wrong, _ = WIRINGS[model][int(kind)]
        more = ["--wiring", f"{field}={wrong}"]
    # Time enough on a busy machine: what is found must not depend on it.
    rules = "misconverted-weight,wiring-mismatch,ill-fitting-pairs"
    command = [attnscope, "doctor", folder, "--text", file, "--rules", rules, "--repair-time", "600", *more]
    done = subprocess.run([str(x) for x in command] + ["--format", "json", "--threads", "1", "--quiet"], capture_output=True, text=True)
    if done.returncode not in (0, 1, 2) or not done.stdout:
        return {"error": done.stderr[-500:]}
    report = json.loads(done.stdout)
    keep = ("rule", "severity", "best", "possible", "repair", "nll_declared", "nll_best", "p", "evidence")
    wiring = report["wiring"] or {}
    return {
        "findings": [{key: f.get(key) for key in keep} for f in report["findings"]],
        "not_checked": {n["rule"]: n["why"] for n in report["not_checked"]},
        "fit": wiring.get("fit"),
        "best_trials": (wiring.get("trials") or [])[:3],
    }


def outcome(run, result):
    """A word for what came of a run, and whether it is as it should be."""
    if "error" in result:
        return "error", False
    found = {f["rule"]: f for f in result["findings"] if f.get("severity") != "info"}
    accused = [rule for rule in found if rule != "ill-fitting-pairs"]
    group, model, kind = run[:3]
    expected = None
    if group == "wrong fields":
        field, _, right = WIRINGS[model][int(kind)]
        expected = (field, right)
    if group == "damaged weights":
        expected = WEIGHTS[kind][1]
    undecided = "undecided" if "wiring-mismatch" in result["not_checked"] else "nothing found"
    if expected is None:
        if accused:
            return "accused: " + ", ".join(accused), False
        if "ill-fitting-pairs" in found:
            return "texts do not fit", group != "right texts"
        return undecided, True
    if isinstance(expected, tuple):
        finding = found.get("wiring-mismatch")
        if finding is None:
            return ("accused: " + ", ".join(accused) if accused else undecided), not accused
        field, right = expected
        if finding["best"] == {field: right}:
            return "found", accused == ["wiring-mismatch"]
        in_set = right in (finding["possible"].get(field) or []) and set(finding["best"]) == {field}
        return ("found in a set", True) if in_set else ("wrong", False)
    finding = found.get("misconverted-weight")
    if finding is None:
        return ("accused: " + ", ".join(accused) if accused else undecided), not accused
    return ("named", True) if finding["repair"]["kind"] == expected else ("wrong", False)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("attnscope", type=Path)
    arguments.add_argument("shared", type=Path)
    arguments.add_argument("work", type=Path)
    arguments.add_argument("--minutes", type=float, default=60)
    arguments.add_argument("--only", default="")
    given = arguments.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    log = given.work / "texts.jsonl"
    known = {}
    if log.exists():
        for row in log.read_text().splitlines():
            entry = json.loads(row)
            known[tuple(entry["run"])] = entry["result"]
    end = time.time() + 60 * given.minutes
    runs = plan(given.only)
    for run in runs:
        if run in known or time.time() > end:
            continue
        known[run] = make(run, given.attnscope.resolve(), given.shared, given.work)
        with log.open("a") as file:
            file.write(json.dumps({"run": run, "result": known[run]}) + "\n")
    table, bad = Counter(), []
    for run in runs:
        if run in known:
            word, is_right = outcome(run, known[run])
            table[run[0], word] += 1
            bad += [] if is_right else [(run, word)]
    for (group, word), count in sorted(table.items()):
        print(f"{group:20} {word:40} {count}")
    for run, word in bad:
        print("not as it should be:", word, run)


if __name__ == "__main__":
    main()
