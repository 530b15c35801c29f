//! Graphs of small architectures: their nodes, shapes and masks.

use super::*;
use crate::{Block, Classifier, Positions, Rotary, Switch};

fn paths(architecture: &Architecture, wiring: &Wiring) -> Vec<String> {
    build(architecture, wiring).nodes().iter().map(|node| node.path.to_string()).collect()
}

#[test]
fn an_architecture_has_the_nodes_of_its_stacks_and_no_others() {
    let vaswani = Wiring::VASWANI;
    let rotary = Wiring { target_positions: Positions::Rotary, kv_heads: Some(0), gated: true, ..vaswani };
    let types = Wiring { token_types: true, ..vaswani };
    let cases: &[(Architecture, Wiring, &[&str], &[&str])] = &[
        (
            Architecture::encoder_decoder(1, 1),
            vaswani,
            &["src.ids", "tgt.ids", "decoder.0.cross_attn.weights", "encoder.out", "logits"],
            &["decoder.0.self_attn.q_rot", "src.types", "head.dense"],
        ),
        (
            Architecture::decoder_only(2),
            rotary,
            &[
                "tgt.ids",
                "decoder.1.self_attn.q_rot",
                "decoder.1.self_attn.k_rot",
                "decoder.0.ffn.gated",
                "logits",
            ],
            &["src.ids", "tgt.positions", "decoder.0.cross_attn.q", "encoder.out"],
        ),
        (
            Architecture::encoder_only(1, Head::Transform),
            types,
            &["src.ids", "src.type_ids", "src.types", "head.dense", "head.act", "head.norm", "logits"],
            &["tgt.ids", "decoder.out", "encoder.0.cross_attn.q"],
        ),
        (Architecture::encoder_only(1, Head::None), vaswani, &["encoder.out"], &["logits", "head.dense"]),
    ];
    for (architecture, wiring, has, lacks) in cases {
        let paths = paths(architecture, wiring);
        let kind = architecture.kind();
        has.iter().for_each(|path| assert!(paths.iter().any(|p| p == path), "{kind}: no {path}"));
        lacks.iter().for_each(|path| assert!(paths.iter().all(|p| p != path), "{kind}: {path}"));
        let again = Architecture::of_paths(paths.iter().map(String::as_str));
        assert_eq!(again, *architecture, "{kind}");
    }
}

fn classifier(blocks: &[Block]) -> Architecture {
    let classifier = Classifier { blocks: blocks.to_vec(), classes: 2, length: None };
    Architecture::new(crate::architecture::NO_STACK, Head::Classifier(classifier), |_| 0)
}

#[test]
fn a_classifier_is_its_blocks() {
    let wiring = Wiring { source_positions: Positions::None, ..Wiring::VASWANI };
    let relu = Block::Activation { function: crate::wiring::Activation::Relu };
    let lstm = Block::Lstm { hidden: 64, bidirectional: true };
    let conv = Block::Conv1d { channels: 256, kernel: 7, stride: 3 };
    type Shapes<'a> = &'a [(&'a str, &'a [usize])];
    let cases: &[(&[Block], Shapes<'_>)] = &[
        (
            &[conv, relu, conv, Block::MaxPool {}, Block::Linear { features: 128 }],
            &[
                ("classifier.0.channels_first", &[3, 128, 500]),
                ("classifier.0.conv", &[3, 256, 165]),
                ("classifier.2.conv", &[3, 256, 53]),
                ("classifier.3.pool", &[3, 256]),
                ("classifier.4.linear", &[3, 128]),
                ("logits", &[3, 2]),
            ],
        ),
        (
            &[lstm, lstm, Block::LastState {}],
            &[
                ("classifier.0.lstm.backward.states", &[3, 500, 128]),
                ("classifier.0.lstm.backward.hidden", &[3, 500, 64]),
                ("classifier.0.lstm.out", &[3, 500, 128]),
                ("classifier.1.lstm.forward.last", &[3, 64]),
                ("classifier.1.last", &[3, 128]),
                ("logits", &[3, 2]),
            ],
        ),
        (&[Block::Flatten { features: 64000 }, Block::Linear { features: 8 }], &[("logits", &[3, 2])]),
        (
            &[conv, Block::Rnn { hidden: 5, bidirectional: false }, Block::LastState {}],
            &[("logits", &[3, 2])],
        ),
    ];
    let mut sizes = crate::dim::Sizes::default().with_lengths(3, 500, 0);
    sizes.set(Dim::Model, 128);
    for (blocks, shapes) in cases {
        let graph = build(&classifier(blocks), &wiring);
        for (path, shape) in *shapes {
            let node = graph.node(graph.find(path).unwrap_or_else(|| panic!("no {path}")));
            assert_eq!(sizes.shape(&node.dims).as_deref(), Some(*shape), "{path}");
        }
    }
}

#[test]
fn dropout_stands_before_every_sum_of_a_graph_that_is_trained() {
    let wiring = Wiring { dropout: 0.1, ..Wiring::VASWANI };
    let paths = paths(&Architecture::encoder_decoder(1, 1), &wiring);
    let dropped: Vec<&str> =
        paths.iter().map(String::as_str).filter(|path| path.ends_with(".dropout")).collect();
    let expected = [
        "src.dropout",
        "encoder.0.self_attn.dropout",
        "encoder.0.ffn.dropout",
        "tgt.dropout",
        "decoder.0.self_attn.dropout",
        "decoder.0.cross_attn.dropout",
        "decoder.0.ffn.dropout",
    ];
    assert_eq!(dropped, expected);
}

#[test]
fn keys_and_values_that_are_shared_have_heads_of_their_own() {
    let wiring = Wiring { target_positions: Positions::Rotary, kv_heads: Some(0), ..Wiring::VASWANI };
    let graph = build(&Architecture::decoder_only(1), &wiring);
    let (stack, batch, target) = (Stack::Decoder, Dim::Batch, Dim::Target);
    let cases = [
        ("q_rot", [batch, Dim::Heads(stack), target, Dim::Head(stack)]),
        ("k_rot", [batch, Dim::KvHeads(stack), target, Dim::Head(stack)]),
        ("v_heads", [batch, Dim::KvHeads(stack), target, Dim::Head(stack)]),
        ("scores", [batch, Dim::Heads(stack), target, target]),
        ("context_heads", [batch, Dim::Heads(stack), target, Dim::Head(stack)]),
    ];
    for (leaf, dims) in cases {
        let node = graph.find(&format!("decoder.0.self_attn.{leaf}")).unwrap();
        assert_eq!(graph.node(node).dims, dims, "{leaf}");
    }
}

/// Of four layers, 0 and 2 have a window and turn by another base.
#[test]
fn layers_may_differ_in_window_and_rotary_base() {
    let wiring = Wiring {
        target_positions: Positions::Rotary,
        rotary_base: Some(1e6),
        window: Some(4),
        window_layers: crate::layer_set::LayerSet::of([0, 2]),
        window_rotary_base: Some(1e4),
        ..Wiring::VASWANI
    };
    let graph = build(&Architecture::decoder_only(4), &wiring);
    let of_layer = |layer: usize| {
        let place = AttentionPlace { stack: Stack::Decoder, layer, kind: AttentionKind::SelfAttention };
        let rotated = graph.node(graph.at(place.step(AttentionStep::KRot)).unwrap());
        let Op::Rotate { rotary: Rotary { base, .. }, .. } = rotated.op else {
            panic!("{} does not rotate", rotated.path)
        };
        (graph.mask_of(place).unwrap().reach, base)
    };
    let (local, global) = ((Some(3), 1e4), (None, 1e6));
    assert_eq!([0, 1, 2, 3].map(of_layer), [local, global, local, global]);
}

#[test]
fn a_mask_hides_what_the_wiring_says() {
    let place = |stack, kind| AttentionPlace { stack, layer: 0, kind };
    let cross = place(Stack::Decoder, AttentionKind::CrossAttention);
    let decoder = place(Stack::Decoder, AttentionKind::SelfAttention);
    let encoder = place(Stack::Encoder, AttentionKind::SelfAttention);
    let vaswani = Wiring::VASWANI;
    let cases = [
        (vaswani, encoder, Some((false, true))),
        (vaswani, decoder, Some((true, true))),
        (vaswani, cross, Some((false, true))),
        (Wiring { causal_mask: Switch::Off, ..vaswani }, decoder, Some((false, true))),
        (Wiring { cross_mask: CrossMask::Causal, ..vaswani }, cross, Some((true, true))),
        (Wiring { padding_mask: Switch::Off, ..vaswani }, encoder, None),
    ];
    for (wiring, place, expected) in cases {
        let graph = build(&Architecture::encoder_decoder(1, 1), &wiring);
        assert_eq!(graph.mask_of(place).map(|mask| (mask.causal, mask.padding)), expected, "{place}");
    }
}
