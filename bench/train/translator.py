"""A recipe's encoder-decoder in PyTorch (Hugging Face's MarianMTModel): the same pairs, tokens, batches, schedule and optimiser as
`attnscope train`.

    attnscope train multi30k-en-de --data multi30k --out run
    python translator.py run --data multi30k            # trains, prints validation and the test BLEU once
    python translator.py run --data multi30k --time 30  # milliseconds a step, median of 30
    python translator.py run --data multi30k --judge    # BLEU of attnscope's own best weights, decoded by Hugging Face

Needs torch, transformers, tokenizers and sacrebleu. The tokenizer is read from run/checkpoint/tokenizer.json.
"""

import gzip
import pathlib
import statistics
import time

import sacrebleu
import torch
from torch import nn
from transformers import MarianConfig, MarianMTModel

import order
import run_folder


def lines(folder: pathlib.Path, name: str) -> list[str]:
    plain, packed = folder / name, folder / f"{name}.gz"
    opened = open(plain) if plain.exists() else gzip.open(packed, "rt")
    with opened as text:
        return [line.rstrip("\n") for line in text]


def pairs(folder, names, tokenizer):
    sides = [[e.ids for e in tokenizer.encode_batch(lines(folder, name))] for name in names]
    return list(zip(*sides))


def padded(rows: list[list[int]], pad: int) -> torch.Tensor:
    longest = max(map(len, rows))
    return torch.tensor([row + [pad] * (longest - len(row)) for row in rows])


def tensors(chosen, pad: int):
    source, labels = padded([s for s, _ in chosen], pad), padded([t for _, t in chosen], pad)
    read = torch.cat([torch.full_like(labels[:, :1], pad), labels[:, :-1]], 1)
    is_label = padded([[1] * len(t) for _, t in chosen], 0).bool()
    return source, padded([[1] * len(s) for s, _ in chosen], 0), read, labels.masked_fill(~is_label, -100)


def begin(model: MarianMTModel) -> None:
    """The weights that attnscope begins with, by distribution: crates/attnscope-train/src/first_weights.rs."""
    for name, parameter in model.named_parameters():
        if "embed_positions" in name or "layer_norm" in name:
            continue
        if "shared" in name:
            nn.init.normal_(parameter, std=parameter.shape[-1] ** -0.5)
        elif parameter.dim() > 1:
            nn.init.xavier_uniform_(parameter)
        else:
            nn.init.zeros_(parameter)


@torch.no_grad()
def bleu(model, tokenizer, sources: list[list[int]], references: list[str], pad: int) -> float:
    model.eval()
    made = [""] * len(sources)
    by_length = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    for start in range(0, len(by_length), 50):
        chosen = by_length[start : start + 50]
        rows = padded([sources[i] for i in chosen], pad)
        mask = padded([[1] * len(sources[i]) for i in chosen], 0)
        out = model.generate(rows, attention_mask=mask, num_beams=1, do_sample=False, max_new_tokens=127)
        for i, ids in zip(chosen, out.tolist()):
            made[i] = tokenizer.decode(ids, skip_special_tokens=True)
    model.train()
    return sacrebleu.corpus_bleu(made, [references]).score


@torch.no_grad()
def nats(model, held, pad: int) -> float:
    model.eval()
    total, count = 0.0, 0
    held = sorted(held, key=lambda pair: len(pair[1]))
    for start in range(0, len(held), 64):
        source, mask, read, labels = tensors(held[start : start + 64], pad)
        logits = model(input_ids=source, attention_mask=mask, decoder_input_ids=read).logits
        total += nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum").item()
        count += (labels != -100).sum().item()
    model.train()
    return total / count


def main() -> None:
    parser = run_folder.arguments()
    parser.add_argument("--judge", action="store_true")
    args = parser.parse_args()
    run = run_folder.Run(args)
    recipe, seed, tokenizer = run.recipe, run.seed, run.tokenizer
    data, train, own = recipe["data"], recipe["train"], recipe["optimiser"]
    test = lambda model, pad: bleu(
        model,
        tokenizer,
        [e.ids for e in tokenizer.encode_batch(lines(args.data, data["test"][0]))],
        lines(args.data, data["test"][1]),
        pad,
    )
    if args.judge:
        model = MarianMTModel.from_pretrained(args.run / "best")
        print(f"BLEU {test(model, model.config.pad_token_id):.2f}")
        return
    config = MarianConfig.from_pretrained(args.run / "checkpoint")
    pad = config.pad_token_id
    model = MarianMTModel(config)
    begin(model)
    model.train()
    print(f"{sum(p.numel() for p in model.parameters() if p.requires_grad):,} parameters", flush=True)
    all_pairs = [p for p in pairs(args.data, data["train"], tokenizer) if max(map(len, p)) <= train["longest"]]
    held = pairs(args.data, data["validation"], tokenizer)
    lengths = [max(map(len, pair)) for pair in all_pairs]
    optimiser = run.optimiser(model)
    warm_up = recipe["schedule"]["warm_up"]
    loss_of = nn.CrossEntropyLoss(label_smoothing=train["label_smoothing"], ignore_index=-100)
    step, times, best = 0, [], (float("inf"), None)
    for number in range(train.get("epochs", 1)):
        for batch in order.epoch(
            len(all_pairs), seed, number, batch=train.get("batch"), tokens=train.get("batch_tokens"), lengths=lengths
        ):
            began = time.perf_counter()
            step += 1
            for group in optimiser.param_groups:
                group["lr"] = own["learning_rate"] * min(step / warm_up, (warm_up / step) ** 0.5)
            source, mask, read, labels = tensors([all_pairs[i] for i in batch], pad)
            logits = model(input_ids=source, attention_mask=mask, decoder_input_ids=read).logits
            loss = loss_of(logits.flatten(0, 1), labels.flatten())
            run.update(model, optimiser, loss)
            times.append(time.perf_counter() - began)
            if args.time and len(times) == args.time + 5:
                print(f"{1e3 * statistics.median(times[5:]):.1f} ms a step")
                return
        nll = nats(model, held, pad)
        if nll < best[0]:
            best = (nll, {k: v.clone() for k, v in model.state_dict().items()})
        print(f"epoch {number}, step {step}: validation {nll:.4f} nats a token, {sum(times):.0f} s of steps", flush=True)
    model.load_state_dict(best[1])
    print(f"BLEU {test(model, pad):.2f}")


if __name__ == "__main__":
    main()
