//! PyTorch's files of before the zip: real ones, and ones that lie.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are tests too.

mod common;

use attnscope_checkpoint::{Checkpoint, DType, Error, Format};
use common::fixture;

fn open(bytes: &[u8]) -> Result<Checkpoint, Error> {
    Checkpoint::from_memory("test", vec![("model.bin", bytes.to_vec().into())])
}

fn refused(bytes: &[u8], because: &str) {
    let error = open(bytes).unwrap_err();
    assert!(error.to_string().contains(because), "{error} does not mention {because:?}");
}

/// A file out of its parts; the pickles are of protocol 0.
struct Legacy {
    version: &'static str,
    machine: &'static str,
    value: String,
    keys: &'static str,
    storages: Vec<u8>,
}

/// Element counts and bytes: storage `a` of four floats 0 to 3, `b` of two bytes 7 and 8.
fn storages() -> Vec<u8> {
    let floats = [0f32, 1.0, 2.0, 3.0].into_iter().flat_map(f32::to_le_bytes);
    4i64.to_le_bytes().into_iter().chain(floats).chain(2i64.to_le_bytes()).chain([7, 8]).collect()
}

fn storage(class: &str, key: &str, length: &str, view: &str) -> String {
    format!("(S'storage'\nctorch\n{class}\nS'{key}'\nS'cpu'\nI{length}\n{view}tQ")
}

fn tensor(storage: &str, offset: usize, length: usize) -> String {
    format!("ctorch._utils\n_rebuild_tensor_v2\n({storage}I{offset}\n(I{length}\nt(I1\ntI00\nNtR")
}

impl Default for Legacy {
    fn default() -> Self {
        let a = |view| storage("FloatStorage", "a", "4", view);
        let value = [
            ("whole", tensor(&a("N"), 0, 4)),
            ("view", tensor(&a("(S'v'\nI1\nI2\nt"), 1, 1)),
            ("bytes", tensor(&storage("ByteStorage", "b", "2", "N"), 0, 2)),
        ];
        let value: String = value.map(|(name, tensor)| format!("S'{name}'\n{tensor}s")).concat();
        Self {
            version: "I1001\n.",
            machine: "(dS'little_endian'\nI01\nsS'type_sizes'\n\
                      (dS'short'\nI2\nsS'int'\nI4\nsS'long'\nI4\nss.",
            value: format!("(d{value}."),
            keys: "(lS'a'\naS'b'\na.",
            storages: storages(),
        }
    }
}

impl Legacy {
    fn bytes(&self) -> Vec<u8> {
        let magic = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
        let text = [self.version, self.machine, &self.value, self.keys].concat();
        [magic.as_slice(), text.as_bytes(), &self.storages].concat()
    }
}

#[test]
fn a_model_of_hugging_face() {
    // The numbers are those that torch.load gives.
    let model = Checkpoint::open(&fixture("../marian-old")).unwrap();
    assert_eq!((model.format(), model.tensors().len()), (Format::PyTorch, 107));
    let values = |name| model.read_f32(model.tensor(name).unwrap()).unwrap();
    let sum = |name| values(name).into_iter().map(f64::from).sum::<f64>();
    assert_eq!(model.tensor("lm_head.weight").unwrap().shape, [99, 16]);
    assert_eq!(values("lm_head.weight")[..3], [-0.163_116_9, 0.091_913_93, 0.185_849_4]);
    assert!((sum("model.shared.weight") - 5.544_350_547_774_229).abs() < 1e-9);
    assert!((sum("final_logits_bias") - -0.040_586_386_934_592).abs() < 1e-9);
    assert!((sum("model.decoder.layers.1.fc2.weight") - 4.418_480_983_324_116).abs() < 1e-9);
    let tied = model.shared().into_iter().find(|g| g.iter().any(|t| t.name == "lm_head.weight")).unwrap();
    assert_eq!(tied.len(), 4);
}

#[test]
fn a_model_of_fairseq() {
    let model = Checkpoint::open(&fixture("../fairseq/checkpoint_args.pt")).unwrap();
    assert_eq!(model.tensors().iter().filter(|t| t.name.starts_with("model.")).count(), 49);
    let weight = model.tensor("model.encoder.layers.0.self_attn.v_proj.weight").unwrap();
    let sum: f64 = model.read_f32(weight).unwrap().into_iter().map(f64::from).sum();
    assert!((sum - 3.981_561_079_272_069).abs() < 1e-9);
    let args = model.configs().iter().find(|c| c.source == "args").unwrap();
    assert!(args.facts.contains_key("encoder_layers"), "{:?}", args.facts);
}

#[test]
fn storages_and_views_of_them() {
    let model = open(&Legacy::default().bytes()).unwrap();
    let values = |name| model.read_f32(model.tensor(name).unwrap()).unwrap();
    assert_eq!(values("whole"), [0.0, 1.0, 2.0, 3.0]);
    assert_eq!(values("view"), [2.0]);
    assert_eq!((model.tensor("bytes").unwrap().dtype, values("bytes")), (DType::U8, vec![7.0, 8.0]));
    let [tied] = model.shared().try_into().unwrap();
    assert_eq!(tied.iter().map(|t| t.name.as_str()).collect::<Vec<_>>(), ["whole", "view"]);
}

#[test]
fn a_storage_whose_tensor_was_thrown_away_still_takes_its_place() {
    let a = tensor(&storage("FloatStorage", "a", "4", "N"), 0, 4);
    let b = tensor(&storage("ByteStorage", "b", "2", "N"), 1, 1);
    let model = open(&Legacy { value: format!("{a}0(dS'b'\n{b}s."), ..Legacy::default() }.bytes()).unwrap();
    assert_eq!(model.read_f32(model.tensor("b").unwrap()).unwrap(), [8.0]);
}

#[test]
fn a_module_keeps_its_class() {
    let value = "((S'module'\nctorch.nn\nLinear\nS'linear.py'\nS'class Linear'\ntQo}S'weight'\n";
    let a = tensor(&storage("FloatStorage", "a", "4", "N"), 0, 4);
    let b = tensor(&storage("ByteStorage", "b", "2", "N"), 0, 2);
    let value = format!("{value}{a}sS'mask'\n{b}sb.");
    let model = open(&Legacy { value, ..Legacy::default() }.bytes()).unwrap();
    assert_eq!(model.tensors().len(), 2);
    assert_eq!(model.placeholders()[0].global, "torch.nn.Linear");
}

#[test]
fn cut_anywhere() {
    let small = Legacy::default().bytes();
    let real = std::fs::read(fixture("pytorch/legacy.pt")).unwrap();
    for bytes in [small, real] {
        assert!(open(&bytes).is_ok());
        for end in 0..bytes.len() {
            assert!(open(&bytes[..end]).is_err(), "cut at {end} of {}", bytes.len());
        }
    }
}

#[test]
fn one_byte_changed() {
    for bytes in [Legacy::default().bytes(), std::fs::read(fixture("pytorch/legacy.pt")).unwrap()] {
        for at in 0..bytes.len() {
            for flip in [0xff, 0x80, 0x01] {
                let mut changed = bytes.clone();
                changed[at] ^= flip;
                // Any answer but a panic, and never a value outside the file.
                if let Ok(model) = open(&changed) {
                    model.tensors().iter().for_each(|t| drop(model.raw(t)));
                }
            }
        }
    }
}

#[test]
fn files_that_lie() {
    let a = |length| tensor(&storage("FloatStorage", "a", length, "N"), 0, 4);
    let b = tensor(&storage("ByteStorage", "b", "2", "N"), 0, 2);
    let value = |a: &str| format!("(dS'w'\n{a}sS'b'\n{b}s.");
    let with = |value: String| Legacy { value, ..Legacy::default() }.bytes();
    refused(&Legacy { version: "I1002\n.", ..Legacy::default() }.bytes(), "1001");
    refused(&Legacy { machine: "(dS'little_endian'\nI00\ns.", ..Legacy::default() }.bytes(), "big-endian");
    refused(&Legacy { machine: "(dS'little_endian'\nI01\ns.", ..Legacy::default() }.bytes(), "short");
    refused(&Legacy { machine: "N.", ..Legacy::default() }.bytes(), "little_endian");
    refused(&Legacy { keys: "(lS'a'\naS'a'\na.", ..Legacy::default() }.bytes(), "4 elements");
    refused(&Legacy { keys: "(lS'a'\na.", ..Legacy::default() }.bytes(), "\"b\" among them");
    refused(&Legacy { keys: "(lS'a'\naS'b'\naS'c'\na.", ..Legacy::default() }.bytes(), "\"c\"");
    refused(&Legacy { keys: "(lI0\na.", ..Legacy::default() }.bytes(), "the number 0");
    refused(&Legacy { keys: "N.", ..Legacy::default() }.bytes(), "a list");
    refused(&with(value(&a("3"))), "3 elements");
    refused(&with(value(&a("9223372036854775807"))), "9223372036854775807 elements");
    refused(&with(value(&a("-4"))), "-4");
    refused(&with(value(&format!("{}0{}", a("4"), a("5")))), "as before");
    refused(&with(value(&tensor(&storage("FloatStorage", "a", "4", "N"), 1, 4))), "\"w\"");
    refused(&with(value(&tensor(&storage("FloatStorage", "a", "4", "(S'v'\nI3\nI2\nt"), 0, 1))), "view");
    refused(&with(value(&tensor(&storage("FloatStorage", "a", "4", "(S'v'\nI1\nI2\nt"), 1, 2))), "\"w\"");
    refused(&with(value(&tensor(&storage("OddStorage", "a", "4", "N"), 0, 4))), "OddStorage");
    // Both say the same of a size that is not there.
    let huge = i64::MAX.to_string();
    let storages = i64::MAX.to_le_bytes().to_vec();
    refused(
        &Legacy { value: value(&a(&huge)), storages, ..Legacy::default() }.bytes(),
        "storage \"a\": needs",
    );
}

#[test]
fn the_tar_archives_of_the_first_pytorch_are_named() {
    let mut tar = vec![0; 512];
    tar[..8].copy_from_slice(b"sys_info");
    tar[257..262].copy_from_slice(b"ustar");
    refused(&tar, "before version 0.1.10");
}
