//! The images: 1,797 handwritten digits of 8×8 pixels, part of the program.
//!
//! Which images train and which test is fixed: it depends on nothing that a user can set, so
//! that accuracies can be compared between runs.

use std::error::Error;
use std::io::Read;

use flate2::read::GzDecoder;
use ndarray::{Array2, Axis};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

/// Pixels in an image, row by row.
pub(crate) const PIXELS: usize = 64;
/// The digits, 0 to 9.
pub(crate) const CLASSES: usize = 10;
/// Images to train on; the other 360 test.
pub(crate) const TRAIN_IMAGES: usize = 1_437;

const IMAGES: usize = 1_797;
const BRIGHTEST: u8 = 16;
const SPLIT_SEED: u64 = 1_998;
const DIGITS_CSV_GZ: &[u8] = include_bytes!("../data/digits.csv.gz");

/// Images with what they show.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Images {
    /// One image a row, `[images, PIXELS]`, from 0 (empty) to 1.
    pub(crate) pixels: Array2<f32>,
    /// The digit in each image, less than [`CLASSES`].
    pub(crate) labels: Vec<u8>,
}

impl Images {
    /// The images at `indices`, in that order. Every index must be that of an image.
    pub(crate) fn select(&self, indices: &[usize]) -> Self {
        Self {
            pixels: self.pixels.select(Axis(0), indices),
            labels: indices.iter().filter_map(|&index| self.labels.get(index).copied()).collect(),
        }
    }
}

/// The images to train on and those to test with.
pub(crate) struct Digits {
    pub(crate) train: Images,
    pub(crate) test: Images,
}

impl Digits {
    /// Unpacks the images and splits them.
    pub(crate) fn load() -> Result<Self, Box<dyn Error>> {
        let images = parse(GzDecoder::new(DIGITS_CSV_GZ))?;
        if images.labels.len() != IMAGES {
            let found = images.labels.len();
            return Err(format!("the data set has {found} images, expected {IMAGES}").into());
        }
        // The file has long runs of 0, 1, 2 … by one hand: only a shuffle splits it fairly.
        let mut order: Vec<usize> = (0..IMAGES).collect();
        order.shuffle(&mut ChaCha8Rng::seed_from_u64(SPLIT_SEED));
        let (train, test) = order.split_at(TRAIN_IMAGES);
        Ok(Self { train: images.select(train), test: images.select(test) })
    }
}

/// Reads rows of 64 pixels and a label.
fn parse(csv: impl Read) -> Result<Images, Box<dyn Error>> {
    let mut pixels = Vec::new();
    let mut labels = Vec::new();
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(csv);
    for (row, numbers) in reader.deserialize::<Vec<u8>>().enumerate() {
        let numbers = numbers?;
        let (image, label) = check(&numbers).map_err(|fault| format!("image {row}: {fault}"))?;
        pixels.extend(image.iter().map(|&pixel| f32::from(pixel) / f32::from(BRIGHTEST)));
        labels.push(label);
    }
    Ok(Images { pixels: Array2::from_shape_vec((labels.len(), PIXELS), pixels)?, labels })
}

/// The pixels and the label of one row.
fn check(numbers: &[u8]) -> Result<(&[u8], u8), String> {
    let found = numbers.len();
    let (&label, pixels) = numbers
        .split_last()
        .filter(|(_, pixels)| pixels.len() == PIXELS)
        .ok_or_else(|| format!("{found} columns, expected {PIXELS} pixels and a label"))?;
    if let Some(pixel) = pixels.iter().find(|&&pixel| pixel > BRIGHTEST) {
        return Err(format!("a pixel is {pixel}, expected 0 to {BRIGHTEST}"));
    }
    if usize::from(label) >= CLASSES {
        return Err(format!("the label is {label}, expected 0 to 9"));
    }
    Ok((pixels, label))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_split_takes_every_image_once() {
        let digits = Digits::load().unwrap();
        assert_eq!(digits.train.pixels.dim(), (1_437, 64));
        assert_eq!(digits.test.pixels.dim(), (360, 64));
        // How often each digit occurs in the published data set.
        let occurrences = [178, 182, 177, 183, 181, 182, 181, 179, 174, 180];
        let counted: [usize; CLASSES] = std::array::from_fn(|digit| {
            let labels = digits.train.labels.iter().chain(&digits.test.labels);
            labels.filter(|&&label| usize::from(label) == digit).count()
        });
        assert_eq!(counted, occurrences);
        // The pixels of both parts together are those of the file.
        let sum = f64::from(16_u8)
            * digits
                .train
                .pixels
                .iter()
                .chain(&digits.test.pixels)
                .map(|&pixel| f64::from(pixel))
                .sum::<f64>();
        assert!((sum - 561_718.0).abs() < 1e-6, "{sum}");
    }

    #[test]
    fn a_row_that_is_no_image_is_refused() {
        let message = |row: String| parse(row.as_bytes()).unwrap_err().to_string();
        let zeros = "0,".repeat(63);
        assert!(message(format!("{zeros}9\n")).contains("image 0: 64 columns"));
        assert!(message(format!("{zeros}17,9\n")).contains("a pixel is 17"));
        assert!(message(format!("{zeros}16,10\n")).contains("the label is 10"));
        assert!(message(format!("{zeros}-1,9\n")).contains("line: 1"));
        assert_eq!(parse(format!("{zeros}16,9\n").as_bytes()).unwrap().labels, [9]);
    }
}
