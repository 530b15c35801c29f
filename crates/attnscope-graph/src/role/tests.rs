//! Names of roles, and what a role says of itself.

use super::*;

#[test]
fn a_role_knows_its_place() {
    let cross = Role::Layer(
        Stack::Decoder,
        1,
        LayerStep::Attention(AttentionKind::CrossAttention, AttentionStep::Norm),
    );
    let hidden = Role::Layer(Stack::Encoder, 0, LayerStep::FeedForward(FeedForwardStep::Hidden));
    let part = |role: Role| role.part().map(LayerPart::name);
    let cases = [
        (cross, Some("cross_attn"), Some(Stack::Decoder), true, "decoder.3.cross_attn.norm.bias"),
        (hidden, Some("ffn"), Some(Stack::Encoder), false, "encoder.3.ffn.hidden.bias"),
        (
            Role::Entry(Side::Source, EntryStep::EmbedNorm),
            None,
            Some(Stack::Encoder),
            true,
            "src.embed_norm.bias",
        ),
        (Role::Entry(Side::Target, EntryStep::Embed), None, Some(Stack::Decoder), false, "tgt.embed.bias"),
        (Role::Audio(AudioStep::Conv(2)), None, Some(Stack::Encoder), false, "audio.conv2.bias"),
        (Role::StackOut(Stack::Decoder), None, Some(Stack::Decoder), false, "decoder.out.bias"),
        (Role::Head(HeadStep::Norm), None, None, true, "head.norm.bias"),
        (Role::Logits, None, None, false, "logits.bias"),
    ];
    for (role, name, stack, is_norm, moved) in cases {
        assert_eq!((part(role), role.stack(), role.is_norm()), (name, stack, is_norm), "{role}");
        assert_eq!(role.bias().in_layer(3).to_string(), moved);
        assert_eq!(role.weight().to_string(), format!("{role}.weight"));
    }
    for part in LayerPart::ALL {
        assert_eq!(part.norm(Stack::Decoder, 1).part(), Some(part));
        assert!(part.norm(Stack::Decoder, 1).is_norm());
    }
}
