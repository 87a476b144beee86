//! Vital product data (PCI Express Base Specification 6.27 and I.3 of PCI Local Bus 3.0): what `lspci -vv` and
//! `devlink dev info` show of the product.

/// The strings of the VPD.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vpd {
    /// Product name, the identifier string.
    pub product: String,
    /// PN.
    pub part_number: String,
    /// EC.
    pub engineering_level: String,
    /// SN.
    pub serial_number: String,
}

/// A keyword's data is at most 255 bytes.
const MAX_VALUE: usize = 255;

impl Vpd {
    /// The VPD image: identifier string, read-only section closed by its checksum, end tag.
    pub fn encode(&self) -> Vec<u8> {
        let mut image = Vec::new();
        let product = clipped(&self.product);
        large_tag(&mut image, 0x82, product.len());
        image.extend(product);

        let mut fields = Vec::new();
        for (keyword, value) in
            [(b"PN", &self.part_number), (b"EC", &self.engineering_level), (b"SN", &self.serial_number)]
        {
            let value = clipped(value);
            fields.extend(keyword);
            fields.push(value.len() as u8);
            fields.extend(value);
        }
        // RV holds the checksum and pads the section to a dword.
        let padding = (4 - (fields.len() + 4) % 4) % 4;
        large_tag(&mut image, 0x90, fields.len() + 4 + padding);
        image.extend(fields);
        image.extend(b"RV");
        image.push(1 + padding as u8);
        let sum = image.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
        image.push(sum.wrapping_neg());
        image.extend(std::iter::repeat_n(0, padding));
        image.push(0x78);
        image
    }
}

fn clipped(value: &str) -> &[u8] {
    &value.as_bytes()[..value.len().min(MAX_VALUE)]
}

fn large_tag(image: &mut Vec<u8>, tag: u8, len: usize) {
    image.push(tag);
    image.extend((len as u16).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_up_to_the_checksum_sums_to_zero() {
        let vpd = Vpd {
            product: "ConnectX".into(),
            part_number: "900".into(),
            engineering_level: "A1".into(),
            serial_number: "MT0000".into(),
        };
        let image = vpd.encode();
        let rv = image.windows(2).position(|pair| pair == b"RV").expect("RV is there");
        let sum = image[..rv + 4].iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
        assert_eq!(sum, 0);
        assert_eq!(image.last(), Some(&0x78));
        assert_eq!(&image[..3], &[0x82, 8, 0]);
    }

    #[test]
    fn long_strings_are_clipped_to_what_a_keyword_holds() {
        let vpd = Vpd { part_number: "x".repeat(1000), ..Vpd::default() };
        assert!(vpd.encode().len() < 300);
    }
}
