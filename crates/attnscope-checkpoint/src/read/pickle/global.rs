//! The closed list of globals that mean something to the machine.

use std::fmt;

use crate::dtype::DType;

/// A global the machine knows. None is a function that could be called: each names a way to build a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// `_rebuild_tensor`, `_rebuild_tensor_v2`: storage, offset, shape, strides, …
    Tensor,
    /// `_rebuild_tensor_v3`: the same with a dtype after the hooks.
    TensorOfDtype,
    /// `_rebuild_parameter`, with and without state: the tensor comes first.
    Parameter,
    /// `_rebuild_from_type_v2`: a builder, a class, the builder's arguments, state.
    FromType,
    /// `torch.FloatStorage` and the like.
    Storage(DType),
    /// Bytes without a type.
    UntypedStorage,
    /// `torch.float32` and the like.
    Dtype(DType),
    /// `torch.Size`, `tuple`, `list`, `set`, …: a container made from its only argument.
    Sequence,
    /// `OrderedDict`, `dict`, and `defaultdict`, whose factory is dropped.
    Dict,
    /// `_codecs.encode`: bytes as Python 2 pickles them.
    Encode,
    /// `torch.device`: its name.
    Device,
}

impl Known {
    pub(super) fn find(module: &str, name: &str) -> Option<Self> {
        Some(match (module, name) {
            ("torch._utils", "_rebuild_tensor" | "_rebuild_tensor_v2") => Self::Tensor,
            ("torch._utils", "_rebuild_tensor_v3") => Self::TensorOfDtype,
            ("torch._utils", "_rebuild_parameter" | "_rebuild_parameter_with_state") => Self::Parameter,
            ("torch._tensor", "_rebuild_from_type_v2") => Self::FromType,
            ("collections", "OrderedDict" | "defaultdict") => Self::Dict,
            ("builtins" | "__builtin__", "dict") => Self::Dict,
            ("builtins" | "__builtin__", "set" | "frozenset" | "list" | "tuple") => Self::Sequence,
            ("torch", "Size") => Self::Sequence,
            ("torch", "device") => Self::Device,
            ("_codecs", "encode") => Self::Encode,
            ("torch.storage" | "torch", "UntypedStorage") => Self::UntypedStorage,
            ("torch" | "torch.cuda" | "torch.storage", _) => {
                let storage = name.strip_suffix("Storage").and_then(storage).map(Self::Storage);
                storage.or_else(|| if module == "torch" { dtype(name).map(Self::Dtype) } else { None })?
            }
            _ => return None,
        })
    }
}

fn storage(kind: &str) -> Option<DType> {
    dtype(match kind {
        "Double" => "float64",
        "Float" => "float32",
        "Half" => "float16",
        "BFloat16" => "bfloat16",
        "Long" => "int64",
        "Int" => "int32",
        "Short" => "int16",
        "Char" => "int8",
        "Byte" => "uint8",
        "Bool" => "bool",
        "ComplexFloat" => "complex64",
        "ComplexDouble" => "complex128",
        "QInt8" => "qint8",
        "QUInt8" => "quint8",
        "QInt32" => "qint32",
        _ => return None,
    })
}

fn dtype(name: &str) -> Option<DType> {
    let opaque = |name, block_bytes| DType::Opaque { name, block: 1, block_bytes };
    Some(match name {
        "float64" | "double" => DType::F64,
        "float32" | "float" => DType::F32,
        "float16" | "half" => DType::F16,
        "bfloat16" => DType::BF16,
        "float8_e4m3fn" => DType::F8E4M3,
        "float8_e5m2" => DType::F8E5M2,
        "int64" | "long" => DType::I64,
        "int32" | "int" => DType::I32,
        "int16" | "short" => DType::I16,
        "int8" => DType::I8,
        "uint64" => DType::U64,
        "uint32" => DType::U32,
        "uint16" => DType::U16,
        "uint8" => DType::U8,
        "bool" => DType::Bool,
        "complex32" => opaque("c32", 4),
        "complex64" => opaque("c64", 8),
        "complex128" => opaque("c128", 16),
        "qint8" => opaque("qint8", 1),
        "quint8" => opaque("quint8", 1),
        "qint32" => opaque("qint32", 4),
        "float8_e4m3fnuz" => opaque("f8_e4m3fnuz", 1),
        "float8_e5m2fnuz" => opaque("f8_e5m2fnuz", 1),
        "float8_e8m0fnu" => opaque("f8_e8m0", 1),
        _ => return None,
    })
}

impl fmt::Display for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Storage(dtype) => write!(f, "a torch storage of {dtype}"),
            Self::Dtype(dtype) => write!(f, "{dtype}"),
            other => write!(f, "{other:?}"),
        }
    }
}
