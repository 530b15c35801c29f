"""The columns of `attnscope audit` from Hugging Face's own forward pass: what the benchmark is measured against, and the values
that fixtures/audit holds.

Batches of 32 sentences by length, padded, eager attention, 2 threads; the encoder is shared by both runs of the decoder.

    python bench/audit/transformers_audit.py MODEL pairs.tsv swaps.txt out.json

`swaps.txt` has for each pair the number of the pair whose source it is scored with.
"""

import json
import sys
import time

import torch
from tokenizers import Tokenizer
from transformers import AutoModelForSeq2SeqLM

BATCH = 32


def entropy(weights, visible):
    """Over queries that see at least 4 keys; `weights` is [batch, head, query, key], `visible` [batch, query]."""
    nats = -(weights * weights.clamp_min(1e-45).log()).sum(-1)
    share = nats / visible.clamp_min(2).log()[:, None]
    return nats, share


def mean(values, is_counted):
    """Over queries. [batch, head, query], [batch, 1, query]; NaN where there are none."""
    count = is_counted.sum(-1)
    return torch.where(is_counted, values, torch.zeros(())).sum(-1) / count


def head_measures(weights, query_mask, key_mask, end_mask, causal):
    """[batch, head, 8], in the order of the columns."""
    queries, keys = weights.shape[-2:]
    visible = key_mask.sum(-1, keepdim=True).expand(-1, queries)
    if causal:
        visible = torch.minimum(visible, torch.arange(1, queries + 1)[None])
    is_query = query_mask[:, None]
    nats, share = entropy(weights, visible.float())
    end = (weights * end_mask[:, None, None]).sum(-1)
    beside = weights * (1.0 - end_mask)[:, None, None]
    rest = beside.sum(-1)
    index = torch.arange(queries)
    diagonal, has_diagonal = torch.zeros_like(end), (index[None] < key_mask.sum(-1, keepdim=True))[:, None]
    length = min(queries, keys)
    diagonal[..., :length] = weights.diagonal(dim1=-2, dim2=-1)
    previous = torch.zeros_like(end)
    below = weights.diagonal(offset=-1, dim1=-2, dim2=-1)
    previous[..., 1 : 1 + below.shape[-1]] = below
    has_previous = ((index[None] >= 1) & (index[None] - 1 < key_mask.sum(-1, keepdim=True)))[:, None]
    has_end = end_mask.sum(-1)[:, None] > 0
    columns = [
        mean(share, is_query & (visible >= 4)[:, None]),
        mean(nats.exp(), is_query),
        mean(weights.amax(-1) * visible[:, None], is_query),
        torch.where(has_end, mean(end, is_query), torch.full((), float("nan"))),
        mean(weights[..., 0], is_query),
        mean(diagonal, is_query & has_diagonal),
        mean(previous, is_query & has_previous),
        mean(beside.amax(-1) / rest, is_query & (rest > 0)),
    ]
    return torch.stack(columns, -1)


class Joins:
    """Streams and branches of a post-norm model, by hooks: the input of each layer norm is the sum."""

    def __init__(self, model):
        self.seen = []
        for stack, layers in [("encoder", model.model.encoder.layers), ("decoder", model.model.decoder.layers)]:
            for n, layer in enumerate(layers):
                parts = [("self_attn", layer.self_attn, layer.self_attn_layer_norm)]
                if stack == "decoder":
                    parts.append(("cross_attn", layer.encoder_attn, layer.encoder_attn_layer_norm))
                parts.append(("ffn", layer.fc2, layer.final_layer_norm))
                for name, branch, norm in parts:
                    path = f"{stack}.{n}.{name}"
                    branch.register_forward_hook(lambda _m, _i, out, path=path: self.branch(path, out))
                    norm.register_forward_hook(lambda _m, given, _o, path=path: self.sum(path, given[0]))

    def branch(self, path, out):
        self.last = out[0] if isinstance(out, tuple) else out

    def sum(self, path, total):
        self.seen.append((path, self.last, total))

    def measured(self, mask):
        rows = []
        for path, branch, total in self.seen:
            norm = lambda x: (x.square().sum(-1) * mask).sum(-1).sqrt()
            rows.append((path, norm(branch) / norm(total - branch), norm(total) / mask.sum(-1).sqrt()))
        self.seen = []
        return rows


@torch.inference_mode()
def main(folder, pairs, swaps, out):
    torch.set_num_threads(2)
    tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
    model = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    sources, targets = zip(*(line.rstrip("\n").split("\t") for line in open(pairs, encoding="utf-8")))
    swaps = [int(line) for line in open(swaps)]
    joins = Joins(model)
    start = model.config.decoder_start_token_id
    pad, end = model.config.pad_token_id, model.config.eos_token_id
    begun = time.perf_counter()
    source_ids = [found.ids for found in tokenizer.encode_batch(sources)]
    target_ids = [found.ids for found in tokenizer.encode_batch(targets)]
    order = sorted(range(len(sources)), key=lambda i: (len(source_ids[i]), len(target_ids[i])))

    def padded(rows):
        longest = max(map(len, rows))
        ids = torch.tensor([row + [pad] * (longest - len(row)) for row in rows])
        mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
        return ids, mask

    # Each source goes through the encoder once; its output serves the sentence and whoever takes it for a swap.
    encoded, rows = {}, [None] * len(sources)
    for at in range(0, len(order), BATCH):
        batch = order[at : at + BATCH]
        ids, mask = padded([source_ids[i] for i in batch])
        found = model.model.encoder(ids, attention_mask=mask, output_attentions=True)
        ends = ((ids == end) & (mask == 1)).float()
        heads = [
            (f"encoder.{n}.self_attn", head_measures(a, mask == 1, mask, ends, False))
            for n, a in enumerate(found.attentions)
        ]
        layers = joins.measured(mask.float())
        for row, i in enumerate(batch):
            encoded[i] = found.last_hidden_state[row, : len(source_ids[i])]
            rows[i] = {
                "row": i,
                "heads": [[p, h, v] for p, m in heads for h, v in enumerate(m[row].tolist())],
                "layers": [[p, r[row].item(), n[row].item()] for p, r, n in layers],
            }

    def decode(batch, chosen, measured):
        labels, label_mask = padded([target_ids[i] for i in batch])
        shifted = torch.cat([torch.full((len(batch), 1), start), labels[:, :-1]], 1)
        ids, mask = padded([source_ids[i] for i in chosen])
        states = torch.nn.utils.rnn.pad_sequence([encoded[i] for i in chosen], batch_first=True)
        found = model.model.decoder(
            shifted,
            attention_mask=label_mask,
            encoder_hidden_states=states,
            encoder_attention_mask=mask,
            output_attentions=measured,
            use_cache=False,
        )
        logits = model.lm_head(found.last_hidden_state) + model.final_logits_bias
        nll = torch.nn.functional.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
        return (nll * label_mask).sum(1), found, label_mask, (ids, mask), shifted

    for at in range(0, len(order), BATCH):
        batch = order[at : at + BATCH]
        nll, found, label_mask, (ids, mask), shifted = decode(batch, batch, True)
        layers = joins.measured(label_mask.float())
        ends = ((ids == end) & (mask == 1)).float()
        target_ends = ((shifted == end) & (label_mask == 1)).float()
        heads = []
        for n, (own, cross) in enumerate(zip(found.attentions, found.cross_attentions)):
            heads.append((f"decoder.{n}.self_attn", head_measures(own, label_mask == 1, label_mask, target_ends, True)))
            heads.append((f"decoder.{n}.cross_attn", head_measures(cross, label_mask == 1, mask, ends, False)))
        for row, i in enumerate(batch):
            rows[i]["nll"] = nll[row].item()
            rows[i]["heads"] += [[p, h, v] for p, m in heads for h, v in enumerate(m[row].tolist())]
            rows[i]["layers"] += [[p, r[row].item(), n[row].item()] for p, r, n in layers]
        swapped = decode(batch, [swaps[i] for i in batch], False)[0]
        joins.seen = []
        for row, i in enumerate(batch):
            rows[i]["nll_swapped"] = swapped[row].item()
    seconds = time.perf_counter() - begun
    with open(out, "w", encoding="utf-8") as file:
        json.dump(rows, file)
    print(json.dumps({"sentences": len(rows), "seconds": seconds, "a_second": len(rows) / seconds}))


if __name__ == "__main__":
    main(*sys.argv[1:])
