//! Copies of ONNX Runtime's graphs.

use std::ffi::c_char;
use std::ptr;
use std::sync::Arc;

use backend_api::ComputeBackend;
use ort_sys::{OrtGraph, OrtNode, OrtOpAttr, OrtOpAttrType, OrtStatusPtr, OrtValue, OrtValueInfo};

use super::api::{api, text};
use super::status::check;
use super::value::{Value, element_type, extents};
use crate::error::Result;
use crate::kind::Kind;
use crate::model::{Attribute, Graph, Name, Node, ValueType};

/// Constants of so many bytes are looked at when nodes are claimed; larger ones are copied with what is
/// compiled.
const SMALL: usize = 1 << 10;

/// Which constants are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Constants {
    /// Shapes, axes and other short lists.
    Small,
    /// All.
    All,
}

type Count<T> = unsafe extern "system" fn(*const T, *mut usize) -> OrtStatusPtr;
type Fill<T, V> = unsafe extern "system" fn(*const T, *mut *const V, usize) -> OrtStatusPtr;

/// The graph, and ONNX Runtime's node for each of its nodes. `None` for a graph within a node: a branch or
/// the body of a loop.
///
/// # Safety
/// `graph` must be valid.
pub(super) unsafe fn read(
    graph: *const OrtGraph,
    constants: Constants,
    backend: &Arc<dyn ComputeBackend>,
) -> Result<Option<(Graph, Vec<*const OrtNode>)>> {
    let api = api()?;
    let mut parent = ptr::null();
    let mut copy = Graph::default();
    // SAFETY: the graph is valid, and so is what it gives, for the whole call.
    unsafe {
        check("Graph_GetParentNode", (api.Graph_GetParentNode)(graph, &raw mut parent))?;
        if !parent.is_null() {
            return Ok(None);
        }
        let nodes = list("Graph_GetNodes", graph, api.Graph_GetNumNodes, api.Graph_GetNodes)?;
        for info in
            list("Graph_GetInitializers", graph, api.Graph_GetNumInitializers, api.Graph_GetInitializers)?
        {
            constant(&mut copy, info, constants, backend)?;
        }
        for &of in &nodes {
            let node = node(&mut copy, of, backend)?;
            copy.nodes.push(node);
        }
        copy.inputs =
            names(&mut copy, &list("Graph_GetInputs", graph, api.Graph_GetNumInputs, api.Graph_GetInputs)?)?;
        copy.outputs = names(
            &mut copy,
            &list("Graph_GetOutputs", graph, api.Graph_GetNumOutputs, api.Graph_GetOutputs)?,
        )?;
        Ok(Some((copy, nodes)))
    }
}

/// The names of a node's inputs and outputs, in order.
///
/// # Safety
/// `of` must be valid.
pub(super) unsafe fn signature(of: *const OrtNode) -> Result<[Vec<Name>; 2]> {
    let api = api()?;
    // SAFETY: the caller's promise.
    unsafe {
        let inputs = list("Node_GetInputs", of, api.Node_GetNumInputs, api.Node_GetInputs)?;
        let outputs = list("Node_GetOutputs", of, api.Node_GetNumOutputs, api.Node_GetOutputs)?;
        let named = |values: Vec<*const OrtValueInfo>| values.into_iter().map(|value| name(value)).collect();
        let (inputs, outputs): (Result<_>, Result<_>) = (named(inputs), named(outputs));
        Ok([inputs?, outputs?])
    }
}

unsafe fn list<T, V>(
    call: &'static str,
    of: *const T,
    count: Count<T>,
    fill: Fill<T, V>,
) -> Result<Vec<*const V>> {
    let mut length = 0;
    // SAFETY: the object is valid by the callers' promise, and the list is as long as the count says.
    unsafe {
        check(call, count(of, &raw mut length))?;
        let mut items = vec![ptr::null(); length];
        if length > 0 {
            check(call, fill(of, items.as_mut_ptr(), length))?;
        }
        Ok(items)
    }
}

/// The name of a value; empty for one that is left out.
unsafe fn name(value: *const OrtValueInfo) -> Result<Name> {
    let api = api()?;
    let mut name = ptr::null();
    if value.is_null() {
        return Ok(Name::new());
    }
    // SAFETY: the value is valid by the callers' promise; its name ends with 0.
    unsafe {
        check("GetValueInfoName", (api.GetValueInfoName)(value, &raw mut name))?;
        Ok(text(name))
    }
}

/// The names of values, whose types are kept.
unsafe fn names(graph: &mut Graph, values: &[*const OrtValueInfo]) -> Result<Vec<Name>> {
    let mut names = Vec::with_capacity(values.len());
    for &value in values {
        // SAFETY: the callers' promise.
        let name = unsafe { name(value)? };
        if !name.is_empty() && !graph.types.contains_key(&name) {
            // SAFETY: as before.
            let known = unsafe { value_type(value)? };
            graph.types.insert(name.clone(), known);
        }
        names.push(name);
    }
    Ok(names)
}

unsafe fn value_type(value: *const OrtValueInfo) -> Result<ValueType> {
    let api = api()?;
    let (mut info, mut tensor) = (ptr::null(), ptr::null());
    // SAFETY: the callers' promise; the value keeps what it gives.
    unsafe {
        check("GetValueInfoTypeInfo", (api.GetValueInfoTypeInfo)(value, &raw mut info))?;
        if info.is_null() {
            return Ok(ValueType::default());
        }
        // Null for a sequence, a map or an optional value.
        check("CastTypeInfoToTensorInfo", (api.CastTypeInfoToTensorInfo)(info, &raw mut tensor))?;
        if tensor.is_null() {
            return Ok(ValueType::default());
        }
        let extents = extents(tensor)?.into_iter().map(|extent| usize::try_from(extent).ok());
        // ONNX Runtime tells a single number and an unknown rank alike: without extents.
        let shape = Some(extents.collect::<Vec<_>>()).filter(|shape| !shape.is_empty());
        Ok(ValueType { kind: Kind::of_copies(element_type(tensor)?), shape })
    }
}

unsafe fn constant(
    graph: &mut Graph,
    info: *const OrtValueInfo,
    constants: Constants,
    backend: &Arc<dyn ComputeBackend>,
) -> Result<()> {
    let api = api()?;
    let (mut is_constant, mut value) = (false, ptr::null());
    // SAFETY: the callers' promise.
    unsafe {
        let known = value_type(info)?;
        let name = name(info)?;
        let kind = known.kind;
        graph.types.insert(name.clone(), known);
        check(
            "ValueInfo_IsConstantInitializer",
            (api.ValueInfo_IsConstantInitializer)(info, &raw mut is_constant),
        )?;
        if !is_constant || kind.is_none() {
            return Ok(());
        }
        graph.unchanging.insert(name.clone());
        check("ValueInfo_GetInitializerValue", (api.ValueInfo_GetInitializerValue)(info, &raw mut value))?;
        if value.is_null() || (constants == Constants::Small && bytes(value)? > SMALL) {
            return Ok(());
        }
        // Bytes are quantised weights, which are packed or unpacked when the graph is compiled.
        let is_bytes = kind.is_some_and(Kind::is_bytes) && bytes(value)? > 0;
        let value = Value::new(value)?;
        let tensor = if is_bytes { value.load_words(backend)? } else { value.load(backend)? };
        graph.constants.insert(name, tensor);
    }
    Ok(())
}

unsafe fn bytes(value: *const OrtValue) -> Result<usize> {
    let api = api()?;
    let mut bytes = 0;
    // SAFETY: the callers' promise.
    unsafe { check("GetTensorSizeInBytes", (api.GetTensorSizeInBytes)(value, &raw mut bytes))? };
    Ok(bytes)
}

unsafe fn node(graph: &mut Graph, of: *const OrtNode, backend: &Arc<dyn ComputeBackend>) -> Result<Node> {
    let api = api()?;
    let string =
        |call, get: unsafe extern "system" fn(*const OrtNode, *mut *const c_char) -> OrtStatusPtr| {
            let mut found = ptr::null();
            // SAFETY: the callers' promise; the texts end with 0.
            unsafe {
                check(call, get(of, &raw mut found))?;
                Ok::<_, crate::error::Error>(text(found))
            }
        };
    let mut node = Node {
        name: string("Node_GetName", api.Node_GetName)?,
        operator: string("Node_GetOperatorType", api.Node_GetOperatorType)?,
        domain: string("Node_GetDomain", api.Node_GetDomain)?,
        provider: string("Node_GetEpName", api.Node_GetEpName)?,
        ..Node::default()
    };
    // SAFETY: the callers' promise.
    unsafe {
        check("Node_GetSinceVersion", (api.Node_GetSinceVersion)(of, &raw mut node.since))?;
        node.inputs = names(graph, &list("Node_GetInputs", of, api.Node_GetNumInputs, api.Node_GetInputs)?)?;
        node.outputs =
            names(graph, &list("Node_GetOutputs", of, api.Node_GetNumOutputs, api.Node_GetOutputs)?)?;
        let captured =
            list("Node_GetImplicitInputs", of, api.Node_GetNumImplicitInputs, api.Node_GetImplicitInputs)?;
        node.captured = captured.into_iter().map(|value| name(value)).collect::<Result<_>>()?;
        for of in list("Node_GetAttributes", of, api.Node_GetNumAttributes, api.Node_GetAttributes)? {
            let mut found = ptr::null();
            if of.is_null() {
                continue;
            }
            check("OpAttr_GetName", (api.OpAttr_GetName)(of, &raw mut found))?;
            node.attributes.insert(text(found), attribute(of, backend)?);
        }
    }
    Ok(node)
}

unsafe fn attribute(of: *const OrtOpAttr, backend: &Arc<dyn ComputeBackend>) -> Result<Attribute> {
    let api = api()?;
    // As a number: a newer ONNX Runtime may have types that the enumeration of `ort-sys` lacks.
    let mut code = 0i32;
    // SAFETY: the callers' promise; the enumeration is represented by an i32.
    unsafe { check("OpAttr_GetType", (api.OpAttr_GetType)(of, (&raw mut code).cast()))? };
    // SAFETY: as before, and each list has elements of the type that is named.
    unsafe {
        Ok(match code {
            1 => Attribute::Int(read_list(of, OrtOpAttrType::ORT_OP_ATTR_INT)?.first().copied().unwrap_or(0)),
            2 => Attribute::Ints(read_list(of, OrtOpAttrType::ORT_OP_ATTR_INTS)?),
            3 => {
                let numbers = read_list::<f32>(of, OrtOpAttrType::ORT_OP_ATTR_FLOAT)?;
                Attribute::Float(numbers.first().map_or(0.0, |&number| f64::from(number)))
            }
            4 => {
                let numbers = read_list::<f32>(of, OrtOpAttrType::ORT_OP_ATTR_FLOATS)?;
                Attribute::Floats(numbers.into_iter().map(f64::from).collect())
            }
            5 => {
                let mut bytes = read_list::<u8>(of, OrtOpAttrType::ORT_OP_ATTR_STRING)?;
                while bytes.last() == Some(&0) {
                    bytes.pop();
                }
                Attribute::Text(String::from_utf8_lossy(&bytes).into_owned())
            }
            6 => {
                // One after the other, each with a 0 behind it.
                let bytes = read_list::<u8>(of, OrtOpAttrType::ORT_OP_ATTR_STRINGS)?;
                let texts = bytes.strip_suffix(&[0]).unwrap_or(&bytes);
                let text = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
                let is_none = bytes.is_empty();
                Attribute::Texts(if is_none {
                    Vec::new()
                } else {
                    texts.split(|&x| x == 0).map(text).collect()
                })
            }
            8 => {
                let mut value = ptr::null_mut();
                let status = (api.OpAttr_GetTensorAttributeAsOrtValue)(of, &raw mut value);
                if check("OpAttr_GetTensorAttributeAsOrtValue", status).is_err() || value.is_null() {
                    return Ok(Attribute::Other);
                }
                // A type that isn't computed with makes no attribute of ours.
                let tensor = Value::new(value).and_then(|value| value.load(backend));
                (api.ReleaseValue)(value);
                tensor.map_or(Attribute::Other, Attribute::Tensor)
            }
            _ => Attribute::Other,
        })
    }
}

/// The elements of an attribute.
///
/// # Safety
/// `T` must be the type of the attribute's elements.
unsafe fn read_list<T: bytemuck::Pod>(of: *const OrtOpAttr, kind: OrtOpAttrType) -> Result<Vec<T>> {
    let api = api()?;
    let mut bytes = 0;
    let mut one = [T::zeroed()];
    // SAFETY: the attribute is valid by the callers' promise. The first call may write one element, and says
    // how many bytes all have; it fails if these are more.
    let first =
        unsafe { (api.ReadOpAttr)(of, kind, one.as_mut_ptr().cast(), size_of::<T>(), &raw mut bytes) };
    if bytes <= size_of::<T>() {
        check("ReadOpAttr", first)?;
        return Ok(one.into_iter().take(bytes / size_of::<T>()).collect());
    }
    // Known to be too short.
    _ = check("ReadOpAttr", first);
    let mut items = vec![T::zeroed(); bytes.div_ceil(size_of::<T>())];
    // SAFETY: the list has as many bytes as the attribute.
    unsafe {
        check("ReadOpAttr", (api.ReadOpAttr)(of, kind, items.as_mut_ptr().cast(), bytes, &raw mut bytes))?;
    }
    Ok(items)
}
