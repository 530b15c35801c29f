//! Archives for tests and for the fuzzer.

/// A zip of stored entries, built by hand so that it can also be wrong.
#[derive(Default)]
pub struct Zip {
    bytes: Vec<u8>,
    directory: Vec<u8>,
    entries: u16,
}

impl Zip {
    pub fn entry(self, name: &str, data: &[u8]) -> Self {
        let n = data.len() as u32;
        self.raw(name, data, 0, n, n)
    }

    /// An entry with any method and any sizes in the directory.
    pub fn raw(mut self, name: &str, data: &[u8], method: u16, packed: u32, size: u32) -> Self {
        let offset = self.bytes.len() as u32;
        let mut fields = Vec::new();
        for word in [20, 0, method, 0, 0] {
            fields.extend(u16::to_le_bytes(word));
        }
        fields.extend([0; 4]);
        fields.extend(packed.to_le_bytes());
        fields.extend(size.to_le_bytes());
        fields.extend((name.len() as u16).to_le_bytes());
        fields.extend(0u16.to_le_bytes());
        self.bytes.extend(b"PK\x03\x04");
        self.bytes.extend(&fields);
        self.bytes.extend(name.as_bytes());
        self.bytes.extend(data);
        self.directory.extend(b"PK\x01\x02\x14\x00");
        self.directory.extend(&fields);
        self.directory.extend([0; 10]);
        self.directory.extend(offset.to_le_bytes());
        self.directory.extend(name.as_bytes());
        self.entries += 1;
        self
    }

    /// The last entry once more, under a name of the same length.
    #[allow(dead_code)] // Not every user of this file lies in this way.
    pub fn overlapping(mut self, name: &str) -> Self {
        let from = self.directory.len() - 46 - name.len();
        let mut again = self.directory[from..].to_vec();
        again[46..].copy_from_slice(name.as_bytes());
        self.directory.extend(again);
        self.entries += 1;
        self
    }

    pub fn finish(self) -> Vec<u8> {
        let mut bytes = self.bytes;
        let offset = bytes.len() as u32;
        bytes.extend(&self.directory);
        bytes.extend(b"PK\x05\x06\0\0\0\0");
        bytes.extend(self.entries.to_le_bytes());
        bytes.extend(self.entries.to_le_bytes());
        bytes.extend((self.directory.len() as u32).to_le_bytes());
        bytes.extend(offset.to_le_bytes());
        bytes.extend([0, 0]);
        bytes
    }
}
