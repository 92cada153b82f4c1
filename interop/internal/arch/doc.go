// Package arch holds the test of the module's layers: which package may
// import which, in Go and in C, and which modules the library may pull in.
//
//	examples                        anything
//	interop                         all below; alone in knowing Python
//	usmarray                        memmgr, syclobj, dlpack
//	memmgr                          internal/owner, syclobj
//	internal/owner, syclobj, dlpack nothing of this module
//
// It has no code of its own.
package arch
