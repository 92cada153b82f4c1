/* docstrings.h: the texts that Python's help() shows for the types and functions of the C module,
   in the order of the method tables. The first line of a function's text is its signature, which
   inspect.signature reads; the rest follows numpydoc. tests/test_docs.py runs the examples. */
#ifndef USMB_DOCSTRINGS_H
#define USMB_DOCSTRINGS_H
/* clang-format off */

static const char doc_Array___dlpack__[] =
	"__dlpack__($self, /, *, stream=None, max_version=None, dl_device=None, copy=None)\n"
	"--\n"
	"\n"
	"A capsule with the array as a DLPack tensor, versioned when max_version[0] >= 1.";

static const char doc_Array___dlpack_device__[] =
	"__dlpack_device__($self, /)\n"
	"--\n"
	"\n"
	"The DLPack device: (14, root device index) for USM, (1, 0) for host memory.";

static const char doc_Array___arrow_c_array__[] =
	"__arrow_c_array__($self, /, requested_schema=None)\n"
	"--\n"
	"\n"
	"Capsules of the Arrow C data interface on the same memory: values of an array of one axis,\n"
	"else arrow.fixed_shape_tensor; BufferError where the host cannot read.";

static const char doc_Array___arrow_c_device_array__[] =
	"__arrow_c_device_array__($self, /, requested_schema=None, **kwargs)\n"
	"--\n"
	"\n"
	"The same of the C device data interface: the CPU's where the host can read, else ONEAPI\n"
	"with the event of pending work.";

static const char doc_Array_reshape[] =
	"reshape($self, /, shape, *, copy=None)\n"
	"--\n"
	"\n"
	"A view with another shape where the layout allows one, else a copy;\n"
	"copy=False: ValueError instead of a copy, copy=True: always a copy.";

static const char doc_Array_transpose[] =
	"transpose($self, axes=None, /)\n"
	"--\n"
	"\n"
	"A view with the axes permuted, reversed by default.";

static const char doc_Array_copy[] =
	"copy($self, /)\n"
	"--\n"
	"\n"
	"A C-contiguous, writable copy beside the array (same device and kind of memory).";

static const char doc_Array_to_device[] =
	"to_device($self, device, /, *, stream=None)\n"
	"--\n"
	"\n"
	"The array on a device; the array itself when it is there already.";

static const char doc_Array_asnumpy[] =
	"asnumpy($self, /)\n"
	"--\n"
	"\n"
	"A NumPy array with a copy of the elements; types that NumPy lacks are those of ml_dtypes.";

static const char doc_Array_astype[] =
	"astype($self, dtype, /, *, copy=True)\n"
	"--\n"
	"\n"
	"A copy with the elements converted; the array itself where the type stays and copy is False.";

static const char doc_Array_view[] =
	"view($self, dtype, /)\n"
	"--\n"
	"\n"
	"The same bytes as elements of another type; where their size differs, the last axis is\n"
	"cut anew.";

static const char doc_Array_as_readonly[] =
	"as_readonly($self, /)\n"
	"--\n"
	"\n"
	"A view that refuses to be written to.";

static const char doc_Array_fill[] =
	"fill($self, value, /)\n"
	"--\n"
	"\n"
	"Writes one number to every element.";

static const char doc_Array_item[] =
	"item($self, /, *args)\n"
	"--\n"
	"\n"
	"One element as a Python number: the only one, that of an index in C order, or that of one index\n"
	"for each dimension.";

static const char doc_Array_tolist[] =
	"tolist($self, /)\n"
	"--\n"
	"\n"
	"The elements as Python numbers in nested lists; of a 0-d array, its number.";

static const char doc_Array___complex__[] =
	"__complex__($self, /)\n"
	"--\n"
	"\n"
	"The only element as a complex number.";

static const char doc_Array___array__[] =
	"__array__($self, /, dtype=None, copy=None)\n"
	"--\n"
	"\n"
	"A NumPy array on the same memory where the host may read it; TypeError on device memory.\n"
	"copy=False: ValueError instead of a copy, copy=True: always a copy.";

static const char doc_Array___array_function__[] =
	"__array_function__($self, func, types, args, kwargs, /)\n"
	"--\n"
	"\n"
	"NumPy's answer for NumPy arrays on the same memory; TypeError on device memory.";

static const char doc_Array___copy__[] =
	"__copy__($self, /)\n"
	"--\n"
	"\n"
	"copy().";

static const char doc_Array___deepcopy__[] =
	"__deepcopy__($self, memo, /)\n"
	"--\n"
	"\n"
	"copy().";

static const char doc_Array___reduce_ex__[] =
	"__reduce_ex__($self, protocol, /)\n"
	"--\n"
	"\n"
	"For pickle: the bytes, from protocol 5 on as a buffer that may travel beside the pickle.";

static const char doc_Array_release[] =
	"release($self, /)\n"
	"--\n"
	"\n"
	"Closes the array: every later use of it is a ValueError. Its reference of the memory is dropped\n"
	"now, or when the last buffer of it and the last operation on it end. If __sycl_usm_array_interface__\n"
	"or __array_interface__ was read, it is dropped when the object is deallocated: consumers of a\n"
	"dictionary keep only the object alive. Views and exported tensors stay valid.";

static const char doc_Array___enter__[] =
	"__enter__($self, /)\n"
	"--\n"
	"\n"
	"The array itself.";

static const char doc_Array___exit__[] =
	"__exit__($self, /, *args)\n"
	"--\n"
	"\n"
	"release().";

static const char doc_Array_shape[] =
	"Extents, a tuple.";

static const char doc_Array_strides[] =
	"Steps between neighbours in elements, a tuple.";

static const char doc_Array_dtype[] =
	"The element type: a str with its array API name that also equals NumPy's dtype of it.";

static const char doc_Array_typestr[] =
	"Type string of the array interfaces; None where there is none.";

static const char doc_Array_ndim[] =
	"Number of dimensions.";

static const char doc_Array_size[] =
	"Number of elements.";

static const char doc_Array_itemsize[] =
	"Bytes of one element (1 for packed sub-byte types).";

static const char doc_Array_nbytes[] =
	"Bytes of all elements laid side by side.";

static const char doc_Array_usm_type[] =
	"\"device\", \"shared\" or \"host\"; None on the host backend.";

static const char doc_Array_interprocess[] =
	"Whether other processes can map the memory: True, \"readonly\" where they cannot write it, False.";

static const char doc_Array_device[] =
	"The Device that the memory belongs to.";

static const char doc_Array_sycl_queue[] =
	"The queue that the array was made with; where none was named, the one that dpctl keeps for\n"
	"the memory's context and device, or a light object with _get_capsule() where dpctl is not\n"
	"loaded. None on the host backend.";

static const char doc_Array_sycl_context[] =
	"The memory's context, likewise a dpctl.SyclContext; None on the host backend.";

static const char doc_Array_sycl_device[] =
	"The device of the USM: a dpctl.SyclDevice where dpctl is loaded, else a Device; None on\n"
	"the host backend.";

static const char doc_Array_readonly[] =
	"Whether writing is refused.";

static const char doc_Array_T[] =
	"The array with its axes reversed.";

static const char doc_Array___array_priority__[] =
	"Above that of NumPy's arrays: their operators leave ours to us.";

static const char doc_Array_mT[] =
	"The array with its last two axes swapped.";

static const char doc_Array__pointer[] =
	"Address of the first element.";

static const char doc_Array___sycl_usm_array_interface__[] =
	"The dictionary of the SYCL USM array interface; no such attribute on the host backend.";

static const char doc_Array___array_interface__[] =
	"NumPy's array interface, where the host may read the memory.";

static const char doc_Array[] =
	"A typed, strided view of reference-counted memory: USM of a SYCL device or plain host memory.\n"
	"\n"
	"Made by empty, zeros, asarray, from_dlpack and from_usm_array_interface. Views share the\n"
	"memory and keep it alive.";

static const char doc_cute_Tensor_mark_layout_dynamic[] =
	"mark_layout_dynamic($self, /, leading_dim=None)\n"
	"--\n"
	"\n"
	"Makes all extents dynamic, and all strides but that of the leading dimension, which must be\n"
	"1, and strides of 0. None: the mode of stride 1 leads. In place; returns the tensor.";

static const char doc_cute_Tensor_mark_compact_shape_dynamic[] =
	"mark_compact_shape_dynamic($self, /, mode, stride_order=None, divisibility=1)\n"
	"--\n"
	"\n"
	"Makes the extent of one mode dynamic, a multiple of divisibility, and with it the strides\n"
	"that span it, in a compact layout. stride_order: the modes from the outermost to the\n"
	"innermost; None: by descending strides. In place; returns the tensor.";

static const char doc_cute_Tensor_clone[] =
	"clone($self, /)\n"
	"--\n"
	"\n"
	"A tensor of the same memory with marks of its own.";

static const char doc_cute_Tensor_release[] =
	"release($self, /)\n"
	"--\n"
	"\n"
	"Gives the memory back before the tensor is deleted; any use after it but release() and\n"
	"str() is a ValueError. with does it at the end of its block.";

static const char doc_cute_Tensor___enter__[] =
	"__enter__($self, /)\n"
	"--\n"
	"\n"
	"Return the tensor itself.";

static const char doc_cute_Tensor___exit__[] =
	"__exit__($self, /, *args)\n"
	"--\n"
	"\n"
	"Call release().";

static const char doc_cute_Tensor_shape[] =
	"Extents in elements, a tuple, those of dynamic modes too.";

static const char doc_cute_Tensor_stride[] =
	"Strides in elements, a tuple, dynamic ones too, as the marks left them.";

static const char doc_cute_Tensor_memspace[] =
	"\"generic\" for memory of the host, \"gmem\" for a device's.";

static const char doc_cute_Tensor_element_type[] =
	"CuTe's name of the element type, \"Float32\".";

static const char doc_cute_Tensor_layout[] =
	"The layout as CuTe DSL prints it, \"(30,20):(20,1)\".";

static const char doc_cute_Tensor_key[] =
	"A string that is the same for tensors that one compiled kernel serves: element type, memory\n"
	"space, alignment, and the layout with its dynamic marks but without dynamic values. Stable\n"
	"across processes and releases of this major version.";

static const char doc_cute_Tensor_assumed_align[] =
	"Bytes that the address is assumed to be a multiple of.";

static const char doc_cute_Tensor_data_ptr[] =
	"Address of the first element.";

static const char doc_cute_Tensor_dynamic_shapes_mask[] =
	"1 for each mode whose extent is dynamic, else 0.";

static const char doc_cute_Tensor_dynamic_strides_mask[] =
	"1 for each mode whose stride is dynamic, else 0.";

static const char doc_cute_Tensor_released[] =
	"Whether release() was called.";

static const char doc_cute_Tensor[] =
	"A tensor's memory and its layout as a compiled kernel sees it. Made by from_dlpack; keeps its\n"
	"source alive. Tensors compare by identity; compare and hash their key.";

static const char doc_Device_filter_string[] =
	"What device= takes: \"opencl:cpu:0\", \"host\".";

static const char doc_Device_name[] =
	"The device's name.";

static const char doc_Device_backend[] =
	"What the device's platform runs on.";

static const char doc_Device_device_type[] =
	"The sort of the device: cpu, gpu, accelerator, host.";

static const char doc_Device_dlpack_device[] =
	"DLPack's (device type, id); None when DLPack has none.";

static const char doc_Device_global_mem_size[] =
	"Bytes of the device's memory; 0 when not known.";

static const char doc_Device[] =
	"A device that arrays can live on; see devices().";

static const char doc_DType___reduce__[] =
	"__reduce__($self, /)\n"
	"--\n"
	"\n"
	"For pickle: the name.";

static const char doc_DType_name[] =
	"The name alone, a str.";

static const char doc_DType_itemsize[] =
	"Bytes of one element (1 for sub-byte types).";

static const char doc_DType[] =
	"DType(type, /)\n"
	"--\n"
	"\n"
	"An element type: its array API name, which also equals NumPy's dtype and scalar type of that name.";

static const char doc_devices[] =
	"devices()\n"
	"--\n"
	"\n"
	"The SYCL root devices in the order of their DLPack ids, then the host backend.";

static const char doc_empty[] =
	"empty(shape, dtype=\"float32\", *, usm_type=None, sycl_queue=None, device=None, order=\"C\", interprocess=None)\n"
	"--\n"
	"\n"
	"A new array without values. usm_type is \"device\", \"shared\" or \"host\", by default \"device\" where\n"
	"there is SYCL, else plain memory; device=\"host\" is the host backend, which has no usm_type.\n"
	"interprocess=True is memory that other processes of this machine can map and write, \"readonly\" that\n"
	"they can read; RuntimeError where there is no such memory.";

static const char doc_zeros[] =
	"zeros(shape, dtype=\"float32\", *, usm_type=None, sycl_queue=None, device=None, order=\"C\", interprocess=None)\n"
	"--\n"
	"\n"
	"A new array of zeros; see empty.";

static const char doc_ones[] =
	"ones(shape, dtype=\"float32\", *, usm_type=None, sycl_queue=None, device=None, order=\"C\", interprocess=None)\n"
	"--\n"
	"\n"
	"A new array of ones; see empty.";

static const char doc_full[] =
	"full(shape, fill_value, dtype=None, *, usm_type=None, sycl_queue=None, device=None, order=\"C\", interprocess=None)\n"
	"--\n"
	"\n"
	"A new array with a value everywhere, of its own type by default; see empty. A number\n"
	"becomes an element as in asarray.";

static const char doc_empty_like[] =
	"empty_like(x, /, *, dtype=None, usm_type=None, sycl_queue=None, device=None, order=\"K\", interprocess=None)\n"
	"--\n"
	"\n"
	"A new array of the shape of x, beside it and of its type unless said otherwise.";

static const char doc_zeros_like[] =
	"zeros_like(x, /, *, dtype=None, usm_type=None, sycl_queue=None, device=None, order=\"K\", interprocess=None)\n"
	"--\n"
	"\n"
	"The same with zeros.";

static const char doc_ones_like[] =
	"ones_like(x, /, *, dtype=None, usm_type=None, sycl_queue=None, device=None, order=\"K\", interprocess=None)\n"
	"--\n"
	"\n"
	"The same with ones.";

static const char doc_full_like[] =
	"full_like(x, /, fill_value, *, dtype=None, usm_type=None, sycl_queue=None, device=None, order=\"K\", interprocess=None)\n"
	"--\n"
	"\n"
	"The same with a value.";

static const char doc_asarray[] =
	"asarray(obj, /, *, dtype=None, usm_type=None, device=None, copy=None)\n"
	"--\n"
	"\n"
	"The array of obj: by its __sycl_usm_array_interface__, else DLPack, else its buffer,\n"
	"else __array_interface__ or __array_struct__, else __array__(copy=False), else Arrow's C data\n"
	"interface, else a copy by __array__, else as a nested sequence of numbers and arrays. Copies\n"
	"only where it must, or with copy=True. copy=False never copies: it is an error instead.\n"
	"\n"
	"With dtype, the elements of arrays are converted as by astype. Numbers, NumPy's scalars too,\n"
	"are converted as NumPy converts Python's numbers: a fraction is cut toward zero, a number\n"
	"outside the range of an integer type is an OverflowError, NaN in one a ValueError, a complex\n"
	"number in a real type a TypeError.";

static const char doc_from_dlpack[] =
	"from_dlpack(x, /, *, device=None, copy=None)\n"
	"--\n"
	"\n"
	"The array of an object with __dlpack__ (or of a DLPack capsule), on the same memory\n"
	"unless device or copy ask for something else.";

static const char doc_from_usm_array_interface[] =
	"from_usm_array_interface(obj, /)\n"
	"--\n"
	"\n"
	"The array of obj's __sycl_usm_array_interface__, never a copy.";

static const char doc__unpickle[] =
	"_unpickle(buffer, dtype, shape, order, padded, usm_type, device, readonly, /)\n"
	"--\n"
	"\n"
	"The array of a pickle.";

static const char doc_stats[] =
	"stats()\n"
	"--\n"
	"\n"
	"The memory manager's counters, a dict.";

static const char doc_trim[] =
	"trim()\n"
	"--\n"
	"\n"
	"Gives idle memory of all pools back to the system; returns the bytes.";

static const char doc__set_limit[] =
	"_set_limit(bytes, /)\n"
	"--\n"
	"\n"
	"Bounds what all pools hold together, idle memory included; 0 is no bound.";

static const char doc_module[] =
	"SYCL unified shared memory shared without copies, by __sycl_usm_array_interface__ and DLPack.";

static const char doc_cute_from_dlpack[] =
	"from_dlpack(tensor, assumed_align=None, use_32bit_stride=None, *, leading=\"unique\", unit_strides=False)\n"
	"--\n"
	"\n"
	"The tensor's layout as CuTe DSL describes it, fully static, on the same memory.\n"
	"\n"
	"tensor: an object with __dlpack__, or a DLPack capsule, on any device whose memory has\n"
	"addresses. assumed_align: bytes, a power of two that divides the address; None: the\n"
	"element's size. use_32bit_stride: how dynamic strides print and what they may hold: None\n"
	"\"?\", False \"?{i64}\", True \"?\" and they must fit int32. leading: what\n"
	"mark_layout_dynamic() does with several strides of 1: \"unique\" refuses, \"skip_size_one\"\n"
	"passes over modes of size 1. unit_strides: strides of modes of size 1 become 1.\n"
	"\n"
	"Nothing is waited for: finish the work on the memory, or launch on its queue.";

static const char doc_cute_from_dlpack_dynamic[] =
	"from_dlpack_dynamic(tensor, assumed_align=None, use_32bit_stride=None, *, leading=\"unique\", unit_strides=False)\n"
	"--\n"
	"\n"
	"What CuTe DSL does to a kernel's arguments that are no tensors of its own:\n"
	"from_dlpack(...).mark_layout_dynamic() in one call.";

static const char doc_cute[] =
	"Tensors as NVIDIA's CuTe DSL describes them: which extents and strides a compiled kernel takes\n"
	"as constants and which as arguments. The conversion of CuTe DSL's from_dlpack.";

static const char doc_light__get_capsule[] =
	"_get_capsule($self, /)\n"
	"--\n"
	"\n"
	"A fresh capsule (\"SyclQueueRef\" or \"SyclContextRef\"), as dpctl's objects give.";

static const char doc_light_sycl_context[] =
	"The context.";

static const char doc_light_sycl_device[] =
	"The Device.";

static const char doc_SyclQueue[] =
	"A queue; dpctl.SyclQueue(q._get_capsule()) makes dpctl's object of it.";

static const char doc_SyclContext[] =
	"A context; dpctl.SyclContext(c._get_capsule()) makes dpctl's object of it.";

#endif
