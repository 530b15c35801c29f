"""A recipe's classifier in PyTorch: the same rows, tokens, order and optimiser as `attnscope train`, for accuracies side by side.

    attnscope train imdb-conv --data imdb-50k.jsonl.gz --out run
    python classifier.py run --data imdb-50k.jsonl.gz            # trains, prints validation a epoch and the test accuracy once
    python classifier.py run --data imdb-50k.jsonl.gz --time 30  # milliseconds a step, median of 30

The vocabulary is read from run/checkpoint/tokenizer.json; weights are torch's own defaults.
"""

import gzip
import json
import pathlib
import statistics
import time

import torch
from tokenizers import Tokenizer
from torch import nn

import order
import run_folder


class Recurrent(nn.Module):
    """A recurrent layer; what follows takes its states or the last of them."""

    def __init__(self, kind: str, inputs: int, block: dict):
        super().__init__()
        self.both = block.get("bidirectional", False)
        cell = {"rnn": nn.RNN, "lstm": nn.LSTM}[kind]
        self.cell = cell(inputs, block["hidden"], batch_first=True, bidirectional=self.both)

    def forward(self, x):
        states, last = self.cell(x)
        last = last[0] if isinstance(last, tuple) else last
        self.last = torch.cat([last[0], last[1]], -1) if self.both else last[0]
        return states


class Convolution(nn.Module):
    def __init__(self, inputs: int, block: dict):
        super().__init__()
        self.conv = nn.Conv1d(inputs, block["channels"], block["kernel"], block["stride"])

    def forward(self, x):  # [batch, position, channel] on both sides
        return self.conv(x.transpose(1, 2)).transpose(1, 2)


def sinusoids(length: int, width: int) -> torch.Tensor:
    """Sines and cosines in turn."""
    angle = torch.arange(length)[:, None] / 10000 ** (torch.arange(0, width, 2) / width)
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(1)


class Classifier(nn.Module):
    def __init__(self, table: dict, vocabulary: int):
        super().__init__()
        width, length = table["embedding"], table["length"]
        self.embedding = nn.Embedding(vocabulary, width)
        self.layers = self.norm = None
        if table["layers"]:
            inner, p = table.get("feed_forward", 4 * width), table["dropout"]
            layer = nn.TransformerEncoderLayer(width, table["heads"], inner, p, batch_first=True, norm_first=True)
            self.layers = nn.TransformerEncoder(layer, table["layers"], enable_nested_tensor=False)
            self.norm, self.dropout = nn.LayerNorm(width), nn.Dropout(p)
            self.register_buffer("positions", sinusoids(length, width))
        self.kinds, blocks = [], []
        for block in table["block"]:
            kind = block["kind"]
            made = nn.Identity()
            if kind in ("rnn", "lstm"):
                made = Recurrent(kind, width, block)
                width = block["hidden"] * (2 if made.both else 1)
            elif kind == "conv1d":
                made = Convolution(width, block)
                width = block["channels"]
            elif kind == "flatten":
                made, width = nn.Flatten(), block["features"]
            elif kind == "linear":
                made, width = nn.Linear(width, block["features"]), block["features"]
            elif kind == "activation":
                made = {"relu": nn.ReLU, "tanh": nn.Tanh, "gelu": nn.GELU}[block["function"]]()
            elif kind == "dropout":
                made = nn.Dropout(block["p"])
            self.kinds.append(kind)
            blocks.append(made)
        self.blocks = nn.ModuleList(blocks)
        self.scores = nn.Linear(width, table["classes"])

    def forward(self, ids):
        padding = ids == 0
        x = self.embedding(ids)
        if self.layers is not None:
            x = self.dropout(x + self.positions)
            x = self.norm(self.layers(x, src_key_padding_mask=padding))
        before = None
        for kind, block in zip(self.kinds, self.blocks):
            if kind == "last-state":
                x = before.last
            elif kind == "max-pool":
                x = x.amax(1)
            elif kind == "mean-pool":
                kept = (~padding).unsqueeze(-1).to(x.dtype)
                x = (x * kept).sum(1) / kept.sum(1).clamp(min=1)
            else:
                x = block(x)
            before = block
        return self.scores(x)


def rows(path: pathlib.Path, split: str, tokenizer: Tokenizer, length: int):
    opened = gzip.open(path, "rt") if path.suffix == ".gz" else open(path)
    texts, labels = [], []
    with opened as lines:
        for line in lines:
            row = json.loads(line)
            if row["split"] == split:
                texts.append(row["text"])
                labels.append(row["label"])
    ids = torch.zeros(len(texts), length, dtype=torch.long)
    for start in range(0, len(texts), 1000):
        for i, encoding in enumerate(tokenizer.encode_batch(texts[start : start + 1000])):
            kept = encoding.ids[:length]
            ids[start + i, : len(kept)] = torch.tensor(kept, dtype=torch.long)
    return ids, torch.tensor(labels)


@torch.no_grad()
def judged(model, ids, labels) -> tuple[float, float]:
    """Nats a text, and the share that is right."""
    model.eval()
    nats, right = 0.0, 0
    for i, c in zip(ids.split(250), labels.split(250)):
        logits = model(i)
        nats += nn.functional.cross_entropy(logits, c, reduction="sum").item()
        right += (logits.argmax(-1) == c).sum().item()
    model.train()
    return nats / len(labels), right / len(labels)


def main() -> None:
    args = run_folder.arguments().parse_args()
    run = run_folder.Run(args)
    recipe, seed, tokenizer = run.recipe, run.seed, run.tokenizer
    table, train = recipe["model"], recipe["train"]
    ids, labels = rows(args.data, "train", tokenizer, table["length"])
    kept, held = order.held_out(len(ids), recipe["data"]["validation_share"], seed)
    model = Classifier(table, tokenizer.get_vocab_size())
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters", flush=True)
    optimiser = run.optimiser(model)
    loss_of = nn.CrossEntropyLoss(label_smoothing=train["label_smoothing"])
    kept_rows, best, times = torch.tensor(kept), (float("inf"), None), []
    for number in range(train.get("epochs", 1)):
        for batch in order.epoch(len(kept), seed, number, batch=train["batch"]):
            began = time.perf_counter()
            chosen = kept_rows[batch]
            loss = loss_of(model(ids[chosen]), labels[chosen])
            run.update(model, optimiser, loss)
            times.append(time.perf_counter() - began)
            if args.time and len(times) == args.time + 5:
                print(f"{1e3 * statistics.median(times[5:]):.1f} ms a step")
                return
        held_rows = torch.tensor(held)
        nll, right = judged(model, ids[held_rows], labels[held_rows])
        # As attnscope picks its best weights.
        if nll < best[0]:
            best = (nll, {k: v.clone() for k, v in model.state_dict().items()})
        print(f"epoch {number}: validation {nll:.4f} nats, {100 * right:.2f} %, {sum(times):.0f} s of steps", flush=True)
    model.load_state_dict(best[1])
    test_ids, test_labels = rows(args.data, "test", tokenizer, table["length"])
    nll, right = judged(model, test_ids, test_labels)
    print(f"test {nll:.4f} nats, {100 * right:.2f} %")


if __name__ == "__main__":
    main()
