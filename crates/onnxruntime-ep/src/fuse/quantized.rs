//! Quantised products, whose weights are packed once for the device: `MatMulNBits` of 4 bits.

use std::sync::Arc;

use backend_api::quant::{GroupScales, MatMulNBits, QuantFormat};
use backend_api::{BackendError, ComputeBackend};

use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::model::{Attribute, Graph, Node};
use crate::numbers::Numbers;
use crate::ops::{MICROSOFT, OWN};
use crate::tensor::Tensor;

/// Packs the weights of every quantised product.
pub(crate) fn pack(graph: &mut Graph, backend: &Arc<dyn ComputeBackend>) -> Result<()> {
    let mut made = Vec::new();
    for node in &mut graph.nodes {
        if node.operator != "MatMulNBits" || node.domain != MICROSOFT {
            continue;
        }
        let constant = |i: usize| node.input(i).and_then(|name| graph.constants.get(name));
        let missing = || Error::invalid("a quantised product without weights or scales");
        let weights = Weights {
            rows: extent(node, "N")?,
            columns: extent(node, "K")?,
            group: extent(node, "block_size")?,
            quants: constant(1).ok_or_else(missing)?.device_bytes_read()?,
            scales: constant(2).ok_or_else(missing)?,
            zeros: constant(3).map(Tensor::device_bytes_read).transpose()?,
        };
        let name = format!("weights of {}", node.outputs.concat());
        let [x, bias] = [0, 5].map(|i| node.input(i).unwrap_or_default().to_owned());
        let kind = weights.scales.kind;
        match weights.planes(backend) {
            Ok(planes) => {
                node.operator = "QuantMatMul".to_owned();
                node.domain = OWN.to_owned();
                let has_zeros = Attribute::Int(i64::from(weights.zeros.is_some()));
                node.attributes.insert("zero_points".to_owned(), has_zeros);
                made.push((name.clone(), planes));
            }
            // Scales of f32 that are no f16.
            Err(Error::Backend(BackendError::Unsupported { .. })) => {
                node.operator = "MatMul".to_owned();
                node.domain = String::new();
                node.attributes = [("transB".to_owned(), Attribute::Int(1))].into();
                made.push((name.clone(), weights.dense(kind)?));
            }
            Err(error) => return Err(error),
        }
        node.inputs = vec![x, name, bias];
    }
    graph.constants.extend(made);
    Ok(())
}

fn extent(node: &Node, name: &str) -> Result<usize> {
    crate::ops::shape::extent(node.int(name, 0))
}

/// The operands of a quantised product, as ONNX Runtime stores them.
struct Weights<'a> {
    rows: usize,
    columns: usize,
    group: usize,
    quants: Vec<u8>,
    scales: &'a Tensor,
    zeros: Option<Vec<u8>>,
}

impl Weights<'_> {
    fn groups(&self) -> usize {
        self.columns.div_ceil(self.group.max(1))
    }

    /// The bytes of the zero points without what fills the last word.
    fn zero_bytes(&self) -> Option<&[u8]> {
        self.zeros.as_ref().and_then(|zeros| zeros.get(..self.rows * self.groups().div_ceil(2)))
    }

    /// The planes of the backend's format.
    fn planes(&self, backend: &Arc<dyn ComputeBackend>) -> Result<Tensor> {
        let &Self { rows, columns, group, .. } = self;
        let mut scales = vec![0; self.scales.count() * self.scales.kind.size()];
        self.scales.read(&mut scales)?;
        let scales = match self.scales.kind {
            Kind::F16 => GroupScales::F16(&scales),
            _ => GroupScales::F32(&scales),
        };
        let bytes = rows * self.groups() * (group / 2);
        let b = self.quants.get(..bytes).ok_or_else(|| Error::invalid("too few quantised weights"))?;
        let weights = MatMulNBits { rows, columns, group, b, scales, zero_points: self.zero_bytes() };
        let mut planes = vec![0; weights.format().bytes(rows, columns)?];
        weights.repack(&mut planes)?;
        Tensor::upload(backend, Kind::U32, vec![planes.len() / 4], &planes)
    }

    /// The weights as numbers, `[rows, columns]`.
    fn dense(&self, kind: Kind) -> Result<Tensor> {
        let scales = self.scales.numbers()?.floats();
        let groups = self.groups();
        let nibble = |bytes: &[u8], i: usize| bytes.get(i / 2).map_or(0, |byte| byte >> (4 * (i % 2)) & 15);
        let number = |i: usize| {
            let (row, column) = (i / self.columns, i % self.columns);
            let group = column / self.group;
            let zero =
                self.zero_bytes().map_or(8, |zeros| nibble(zeros, row * groups.next_multiple_of(2) + group));
            let quant = nibble(&self.quants, (row * groups + group) * self.group + column % self.group);
            let scale = scales.get(row * groups + group).copied().unwrap_or(0.0);
            scale * (f64::from(quant) - f64::from(zero))
        };
        let numbers = Numbers::Float((0..self.rows * self.columns).map(number).collect()).convert(kind);
        Tensor::host(kind, vec![self.rows, self.columns], numbers)
    }
}

/// The format of a packed product.
pub(crate) fn format(node: &Node) -> Result<(QuantFormat, [usize; 2])> {
    let format =
        QuantFormat::U4 { group: extent(node, "block_size")?, zero_points: node.int("zero_points", 0) == 1 };
    Ok((format, [extent(node, "N")?, extent(node, "K")?]))
}
