//! Numbers in JSON that come back with the same bits.

use serde::{Deserialize, Deserializer, Serializer};

/// Writes the shortest digits that give the number back.
pub(crate) fn serialize<S: Serializer>(x: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format!("{x:?}"))
}

/// Reads them.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(|_| serde::de::Error::custom(format!("expected a number, found {text:?}")))
}

/// The same for lists of numbers by name.
pub(crate) mod lists {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    struct Exact(#[serde(with = "super")] f64);

    pub(crate) fn serialize<S: Serializer>(
        lists: &BTreeMap<String, Vec<f64>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let exact = |list: &Vec<f64>| list.iter().map(|&x| Exact(x)).collect::<Vec<_>>();
        serializer.collect_map(lists.iter().map(|(name, list)| (name, exact(list))))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<String, Vec<f64>>, D::Error> {
        let lists = BTreeMap::<String, Vec<Exact>>::deserialize(deserializer)?;
        Ok(lists.into_iter().map(|(name, list)| (name, list.into_iter().map(|x| x.0).collect())).collect())
    }
}
