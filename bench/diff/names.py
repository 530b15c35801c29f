"""Which node of attnscope's graph a module's output is, for three naming schemes. Written by hand, so that the truth here
does not come from the program under test."""

import re

OPENAI = [
    ("audio.conv1", "encoder.conv1"),
    ("audio.conv2", "encoder.conv2"),
    ("tgt.embed", "decoder.token_embedding"),
    ("{s}.{n}.self_attn.norm", "{s}.blocks.{n}.attn_ln"),
    ("{s}.{n}.self_attn.q", "{s}.blocks.{n}.attn.query"),
    ("{s}.{n}.self_attn.k", "{s}.blocks.{n}.attn.key"),
    ("{s}.{n}.self_attn.v", "{s}.blocks.{n}.attn.value"),
    ("{s}.{n}.self_attn.out", "{s}.blocks.{n}.attn.out"),
    ("{s}.{n}.self_attn", "{s}.blocks.{n}.attn"),
    ("{s}.{n}.cross_attn.norm", "{s}.blocks.{n}.cross_attn_ln"),
    ("{s}.{n}.cross_attn.q", "{s}.blocks.{n}.cross_attn.query"),
    ("{s}.{n}.cross_attn.k", "{s}.blocks.{n}.cross_attn.key"),
    ("{s}.{n}.cross_attn.v", "{s}.blocks.{n}.cross_attn.value"),
    ("{s}.{n}.cross_attn.out", "{s}.blocks.{n}.cross_attn.out"),
    ("{s}.{n}.cross_attn", "{s}.blocks.{n}.cross_attn"),
    ("{s}.{n}.ffn.norm", "{s}.blocks.{n}.mlp_ln"),
    ("{s}.{n}.ffn.hidden", "{s}.blocks.{n}.mlp.0"),
    ("{s}.{n}.ffn.act", "{s}.blocks.{n}.mlp.1"),
    ("{s}.{n}.ffn.out", "{s}.blocks.{n}.mlp.2"),
    ("{s}.{n}.ffn", "{s}.blocks.{n}.mlp"),
    ("{s}.{n}.out", "{s}.blocks.{n}"),
    ("encoder.out", "encoder.ln_post"),
    ("encoder.out", "encoder"),
    ("decoder.out", "decoder.ln"),
    ("logits", "decoder"),
    ("logits", "logits"),
]

BART = [
    ("src.embed", "model.encoder.embed_tokens"),
    ("tgt.embed", "model.decoder.embed_tokens"),
    ("src.positions", "model.encoder.embed_positions"),
    ("tgt.positions", "model.decoder.embed_positions"),
    ("src.embed_pos", "model.encoder.layernorm_embedding"),
    ("tgt.embed_pos", "model.decoder.layernorm_embedding"),
    ("{s}.{n}.self_attn.q", "model.{s}.layers.{n}.self_attn.q_proj"),
    ("{s}.{n}.self_attn.k", "model.{s}.layers.{n}.self_attn.k_proj"),
    ("{s}.{n}.self_attn.v", "model.{s}.layers.{n}.self_attn.v_proj"),
    ("{s}.{n}.self_attn.out", "model.{s}.layers.{n}.self_attn.out_proj"),
    ("{s}.{n}.self_attn.weights", "model.{s}.layers.{n}.self_attn.output.1"),
    ("{s}.{n}.self_attn", "model.{s}.layers.{n}.self_attn"),
    ("{s}.{n}.self_attn.norm", "model.{s}.layers.{n}.self_attn_layer_norm"),
    ("{s}.{n}.cross_attn.q", "model.{s}.layers.{n}.encoder_attn.q_proj"),
    ("{s}.{n}.cross_attn.k", "model.{s}.layers.{n}.encoder_attn.k_proj"),
    ("{s}.{n}.cross_attn.v", "model.{s}.layers.{n}.encoder_attn.v_proj"),
    ("{s}.{n}.cross_attn.out", "model.{s}.layers.{n}.encoder_attn.out_proj"),
    ("{s}.{n}.cross_attn.weights", "model.{s}.layers.{n}.encoder_attn.output.1"),
    ("{s}.{n}.cross_attn", "model.{s}.layers.{n}.encoder_attn"),
    ("{s}.{n}.cross_attn.norm", "model.{s}.layers.{n}.encoder_attn_layer_norm"),
    ("{s}.{n}.ffn.hidden", "model.{s}.layers.{n}.fc1"),
    ("{s}.{n}.ffn.act", "model.{s}.layers.{n}.activation_fn"),
    ("{s}.{n}.ffn.out", "model.{s}.layers.{n}.fc2"),
    ("{s}.{n}.ffn.norm", "model.{s}.layers.{n}.final_layer_norm"),
    ("{s}.{n}.out", "model.{s}.layers.{n}"),
    ("encoder.out", "model.encoder"),
    ("decoder.out", "model.decoder"),
    ("logits", "lm_head"),
    ("logits", "logits"),
]


def t5():
    rows = [("src.embed", "encoder.embed_tokens"), ("tgt.embed", "decoder.embed_tokens")]
    for stack, ffn in (("encoder", 1), ("decoder", 2)):
        places = [("self_attn", "layer.0", "SelfAttention")]
        if stack == "decoder":
            places.append(("cross_attn", "layer.1", "EncDecAttention"))
        for node, layer, module in places:
            for part, name in (("q", "q"), ("k", "k"), ("v", "v"), ("out", "o")):
                rows.append((f"{stack}.{{n}}.{node}.{part}", f"{stack}.block.{{n}}.{layer}.{module}.{name}"))
            rows += [
                (f"{stack}.{{n}}.{node}.norm", f"{stack}.block.{{n}}.{layer}.layer_norm"),
                (f"{stack}.{{n}}.{node}.bias", f"{stack}.block.{{n}}.{layer}.{module}.relative_attention_bias"),
                (f"{stack}.{{n}}.{node}", f"{stack}.block.{{n}}.{layer}.{module}"),
                (f"{stack}.{{n}}.{node}.residual", f"{stack}.block.{{n}}.{layer}"),
            ]
        layer = f"{stack}.block.{{n}}.layer.{ffn}"
        rows += [
            (f"{stack}.{{n}}.ffn.norm", f"{layer}.layer_norm"),
            (f"{stack}.{{n}}.ffn.hidden", f"{layer}.DenseReluDense.wi"),
            (f"{stack}.{{n}}.ffn.act", f"{layer}.DenseReluDense.act"),
            (f"{stack}.{{n}}.ffn.out", f"{layer}.DenseReluDense.wo"),
            (f"{stack}.{{n}}.ffn", f"{layer}.DenseReluDense"),
            (f"{stack}.{{n}}.ffn.residual", layer),
            (f"{stack}.{{n}}.out", f"{stack}.block.{{n}}"),
            (f"{stack}.out", f"{stack}.final_layer_norm"),
        ]
    return rows + [("logits", "lm_head"), ("logits", "logits")]


T5 = t5()


def module_of(scheme, node):
    """The path of the module whose output is a node, or that holds a sublayer (`encoder.0.self_attn`)."""
    stack, layer = (node.split(".") + ["", ""])[:2]
    for pattern, module in scheme:
        if pattern.replace("{s}", stack).replace("{n}", layer) == node:
            return module.replace("{s}", stack).replace("{n}", layer)
    raise KeyError(node)


def node_of(scheme, module):
    """The node that a module's output is; a sublayer's module gives the sublayer's `out`. None where it is no node."""
    for pattern, name in scheme:
        expression = re.escape(name).replace(r"\{s\}", "(?P<s>encoder|decoder)").replace(r"\{n\}", r"(?P<n>\d+)")
        found = re.fullmatch(expression, module)
        if found:
            parts = found.groupdict()
            node = pattern.replace("{s}", parts.get("s") or "").replace("{n}", parts.get("n") or "")
            return f"{node}.out" if node.endswith(("_attn", ".ffn")) else node
    return None
