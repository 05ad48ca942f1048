//! What positions do to queries and keys: tables of rotations, and factors of queries.

use std::sync::Arc;

use backend_api::desc::{BinaryDesc, GatherDesc, IndexShape, RopeTables, TensorDesc};
use backend_api::owned::Buffer;
use backend_api::{BackendError, BackendResult, BinaryOp, ComputeBackend, DType};

use crate::layer::Pass;
use crate::weights::upload;
use crate::{Config, Result};

/// Cosines and sines, `[positions, rotary_dim/2]`, and factors, of all positions of a context.
#[derive(Debug)]
pub(crate) struct Rotations {
    positions: usize,
    /// Tables of layers that see all keys.
    global: [Buffer; 2],
    /// Tables of layers with a window, where they differ.
    window: Option<[Buffer; 2]>,
    /// Tables of layers without a rotation, `[1, rotary_dim/2]` ones and zeros, if there are such layers.
    none: Option<[Buffer; 2]>,
    /// `[positions]` of the activations' type: factors of queries, if they aren't all 1.
    query_factors: Option<Buffer>,
}

impl Rotations {
    /// For a context of so many tokens, beside activations of a type.
    pub(crate) fn new(
        backend: &Arc<dyn ComputeBackend>,
        config: &Config,
        context: usize,
        activations: DType,
    ) -> Result<Self> {
        let max = backend.capabilities()?.max_binding_bytes;
        let pair = |[cos, sin]: [&[f32]; 2]| -> BackendResult<[Buffer; 2]> {
            Ok([Buffer::from_slice(backend, cos)?, Buffer::from_slice(backend, sin)?])
        };
        let tables = |window| -> BackendResult<[Buffer; 2]> {
            let (cos, sin) = config.rope.tables(context, window);
            let requested = size_of_val(cos.as_slice());
            if requested > max {
                let what = "bytes of a table of rotations";
                return Err(BackendError::Limit { op: "session", what, requested, max });
            }
            pair([&cos, &sin])
        };
        let window = config.rope.window_base.is_some().then(|| tables(true)).transpose()?;
        // A rotation by nothing, so that such a layer has the kernels of the others.
        let pairs = config.rope.dim / 2;
        let identity = |_| pair([&vec![1.0; pairs], &vec![0.0; pairs]]);
        let none = config.rope.no_rope_interval.map(identity).transpose()?;
        let factors = config.attention_temperature.and_then(|temperature| temperature.factors(context));
        let query_factors = factors.map(|factors| -> Result<Buffer> {
            let table = Buffer::of(backend, activations, &[context])?;
            upload(&table, activations, &factors)?;
            Ok(table)
        });
        let query_factors = query_factors.transpose()?;
        Ok(Self { positions: context, global: tables(false)?, window, none, query_factors })
    }

    /// The tables of layer `index`.
    pub(crate) fn of_layer(&self, config: &Config, index: usize) -> RopeTables {
        let window = self.window.as_ref().filter(|_| config.window_of(index).is_some());
        // Positions beyond a table have its last row.
        let none = self.none.as_ref().filter(|_| !config.rope.rotates(index)).map(|none| (none, 1));
        let (tables, rows) = none.unwrap_or((window.unwrap_or(&self.global), self.positions));
        let [cos, sin] = tables.each_ref().map(Buffer::ptr);
        RopeTables { cos, sin, max_position: rows }
    }

    /// Looks up the factors of the queries of a pass's tokens, if there are such factors.
    pub(crate) fn look_up_query_factors(&self, pass: &Pass<'_>) -> BackendResult<()> {
        let a = pass.activations;
        let Some((table, factors)) = self.query_factors.as_ref().zip(a.query_factors.as_ref()) else {
            return Ok(());
        };
        let shape = IndexShape { rows: self.positions, columns: 1, count: a.rows };
        let [table, positions, factors] = [table, &a.positions, factors].map(Buffer::ptr);
        pass.backend.gather(&GatherDesc::new(a.dtype, table, positions, factors, shape))
    }

    /// Multiplies the queries of each token by its factor, if there are such factors.
    pub(crate) fn scale_queries(&self, pass: &Pass<'_>) -> BackendResult<()> {
        let a = pass.activations;
        let Some(factors) = a.query_factors.as_ref().filter(|_| self.query_factors.is_some()) else {
            return Ok(());
        };
        let [queries, ..] = a.parts;
        let (shape, strides) = ([a.rows, pass.config.query_width()], [queries.ld, 1]);
        let queries = TensorDesc::strided(queries.ptr, a.dtype, &shape, &strides).with_offset(queries.offset);
        let factors = TensorDesc::strided(factors.ptr(), a.dtype, &shape, &[1, 0]);
        pass.backend.binary_ext(&BinaryDesc::new(BinaryOp::Mul, queries, factors, queries))
    }
}
