"""Makes a working gated T5 (v1.1's feed-forward) out of a trained plain one: each gated feed-forward layer learns what the
plain one computes on real sentences, then the whole is trained on for a little while.

    python gated_t5.py T5_FOLDER PAIRS.tsv OUT_FOLDER
"""

import json
import shutil
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import T5Config, T5ForConditionalGeneration

HIDDEN = 384
REGRESSION_STEPS = 1500
TUNING_STEPS = 400
BATCH = 48


def read_pairs(path, tokenizer):
    for line in Path(path).read_text().splitlines():
        source, target = line.split("\t")[:2]
        yield tokenizer.encode(source).ids, tokenizer.encode(target).ids


def pad(rows, fill):
    width = max(map(len, rows))
    return torch.tensor([row + [fill] * (width - len(row)) for row in rows])


def batch_of(pairs, start):
    rows = [pairs[(start + i) % len(pairs)] for i in range(BATCH)]
    source, target = pad([s for s, _ in rows], 0), pad([t for _, t in rows], -100)
    return {"input_ids": source, "attention_mask": (source != 0).long(), "labels": target}


def feed_forwards(model):
    stacks = [*model.encoder.block, *model.decoder.block]
    return [block.layer[-1].DenseReluDense for block in stacks]


def main(folder, pairs_file, out):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
    pairs = list(read_pairs(pairs_file, tokenizer))
    plain = T5ForConditionalGeneration.from_pretrained(folder).float().eval()
    config = plain.config.to_dict()
    for key in ("is_gated_act", "dense_act_fn", "dtype", "torch_dtype"):
        config.pop(key, None)
    config.update(feed_forward_proj="gated-gelu", d_ff=HIDDEN, dropout_rate=0.0)
    gated = T5ForConditionalGeneration(T5Config(**config)).float()
    shared = {k: v for k, v in plain.state_dict().items() if "DenseReluDense" not in k}
    gated.load_state_dict(shared, strict=False)

    seen = [[] for _ in feed_forwards(plain)]
    hooks = [layer.register_forward_hook(lambda _, x, y, s=s: s.append((x[0].detach().flatten(0, 1), y.detach().flatten(0, 1))))
             for layer, s in zip(feed_forwards(plain), seen)]
    with torch.no_grad():
        for step in range(20):
            plain(**batch_of(pairs, step * BATCH))
    [hook.remove() for hook in hooks]
    for at, (layer, samples) in enumerate(zip(feed_forwards(gated), seen)):
        x, y = (torch.cat(part) for part in zip(*samples))
        optimiser = torch.optim.Adam(layer.parameters(), 3e-3)
        for step in range(REGRESSION_STEPS):
            pick = torch.randint(len(x), (512,))
            loss = (layer(x[pick]) - y[pick]).pow(2).mean() / y.var()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        print(f"feed-forward {at}: {100 * float(loss.detach()):.1f} % of the variance left", flush=True)
    optimiser = torch.optim.AdamW(gated.parameters(), 5e-4)
    for step in range(TUNING_STEPS):
        loss = gated(**batch_of(pairs, step * BATCH)).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step % 50 == 49:
            print(f"step {step + 1}: {float(loss.detach()):.3f} nats a token", flush=True)
    gated.half().save_pretrained(out)
    shutil.copy(f"{folder}/tokenizer.json", out)
    saved = json.loads(Path(out, "config.json").read_text())
    print(saved["feed_forward_proj"], saved.get("tie_word_embeddings"))


main(*sys.argv[1:])
