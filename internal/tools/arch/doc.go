// Package arch tests the layers of the module: which packages may import which, in Go and in C, and
// which external modules they may use.
//
//	examples, internal/tools        anything
//	internal/bench                  memmgr and all that it may use
//	interop                         all below; the only layer that uses Python
//	usmarray                        memmgr, syclobj, dlpack
//	memmgr                          internal/owner, syclobj
//	internal/owner, syclobj, dlpack nothing of this module
//
// It contains only tests.
package arch
