//go:build unix

package main

import (
	"path"
	"slices"
	"strings"
)

// A surface is a row of the README's table: stages that try the same kind of input.
type surface struct {
	word string // for -only
	name string
	// Patterns of path.Match, with "/" in a package's directory written as ".".
	stages []string
	// What was found here and mended, since the project has such tests; the changelog has each.
	before string
}

// surfaces are in the order of risk: what others hand in first.
var surfaces = []surface{
	{
		word: "tensors",
		name: "DLPack tensors, byte by byte; the exchange API; deleters that re-enter, raise, are NULL",
		stages: []string{
			"go dlpack FuzzCheck", "go dlpack FuzzPackBits", "go usmarray FuzzSpan",
			"py* dlpack", "py* exchange", "py* exchange_functions", "py* exports",
		},
		before: "a tensor read twice, a lost error, strides that overflow",
	},
	{
		word:   "dictionaries",
		name:   "`__sycl_usm_array_interface__`, hostile objects under every key",
		stages: []string{"go usmarray FuzzValidate", "py* dictionaries"},
		before: "a byte order before nothing, an error that a key's code lost",
	},
	{
		word:   "buffers",
		name:   "buffers and `__array_interface__`",
		stages: []string{"py* exporters", "py* buffers_in", "py* buffers_out"},
		before: "complex integers, -1 dimensions",
	},
	{
		word:   "arrow",
		name:   "Arrow's C structs, columns, IPC and Flight messages",
		stages: []string{"go interop.flight*", "py* arrow"},
		before: "bytes behind a buffer's end, extents that overflow, booleans as extents, half of a list's size",
	},
	{
		word:   "service",
		name:   "requests to the inference service",
		stages: []string{"go interop.inference*"},
		before: "a panic on sizes without bound",
	},
	{
		word:   "files",
		name:   "files: `.npy`, safetensors, pictures, shared libraries, logs",
		stages: []string{"go interop.npy *", "go interop.safetensors *", "go examples.internal.photo *", "go internal.elfcheck *", "go memmgr FuzzReadLog"},
		before: "memory for what a file only claims",
	},
	{
		word:   "processes",
		name:   "messages and handles of other processes",
		stages: []string{"go interop.share *", "go interop.workers *", "py* handles", "py* dask"},
		before: "an integer of two forms, an empty array that could not be received",
	},
	{
		word:   "calls",
		name:   "arguments of calls from Go into Python",
		stages: []string{"go interop.executor *"},
	},
	{
		word:   "pickles",
		name:   "pickles that lie",
		stages: []string{"py* pickles"},
		before: "flags that raise, six-bit elements at odd places",
	},
	{
		word:   "names",
		name:   "names: typestr, element types, filters, kinds of memory",
		stages: []string{"go dlpack FuzzParse*", "go dlpack FuzzTypeStringsAlike", "go syclobj FuzzParseFilter", "py* texts"},
		before: "names that go on behind a NUL",
	},
	{
		word:   "layouts",
		name:   "layouts, slices, elements: what NumPy answers",
		stages: []string{"go usmarray FuzzLayout", "py* views", "py* values"},
		before: "`reshape` with two shapes, integers from 2^63",
	},
	{
		word:   "cute",
		name:   "CuTe layouts",
		stages: []string{"go dlpack.cute *", "py* cute"},
		before: "a stride order beyond the rank",
	},
	{
		word:   "kernels",
		name:   "kernels: SPIR-V, compiler logs, names of types",
		stages: []string{"go syclobj Fuzz*"},
	},
	{
		word:   "pools",
		name:   "sequences on pools and heaps against a model",
		stages: []string{"go memmgr*"},
		before: "alignments that are no power of two",
	},
	{
		word:   "lives",
		name:   "lives of arrays, views, buffers, pickles against a model",
		stages: []string{"py* lives"},
		before: "`release()` in the middle of an operation",
	},
	{
		word:   "meanwhile",
		name:   "what is read changes meanwhile, by callbacks and threads",
		stages: []string{"py* switches", "py* threads", "py* meanwhile", "py* meanwhile_beside"},
		before: "keywords that change, a write beyond an array's end",
	},
	{
		word:   "failing",
		name:   "calls that fail, one after another; disks and address spaces that end; little memory; interrupts",
		stages: []string{"failing *"},
		before: "a handle that stayed, waits that were lost",
	},
	{
		word:   "long",
		name:   "processes that are killed, requests that wait, long runs",
		stages: []string{"long *"},
		before: "requests that nobody woke, memory kept by processes that had died, reuse under a second consumer",
	},
	{
		word:   "suites",
		name:   "all tests under race detector, sanitizers and a restless collector",
		stages: []string{"tests *"},
		before: "reuse of memory under a late deleter",
	},
}

// surfaceOf is the number of a stage's row, len(surfaces) where none names it.
func surfaceOf(s *stage) int {
	i := slices.IndexFunc(surfaces, func(f surface) bool {
		return slices.ContainsFunc(f.stages, func(pattern string) bool { return matches(pattern, s) })
	})
	if i < 0 {
		return len(surfaces)
	}
	return i
}

// matches compares the name, with dots for slashes, which path.Match keeps apart.
func matches(pattern string, s *stage) bool {
	ok, _ := path.Match(pattern, strings.ReplaceAll(s.Name, "/", "."))
	return ok
}
