// Package kernel launches kernels, which package syclobj compiles from OpenCL C or
// SPIR-V, with arrays of package usmarray as arguments. No Python is involved.
//
//	program, err := queue.BuildOpenCL(source, "")
//	scale, err := program.Kernel("scale") // kernel void scale(global const float *x, global float *y, float f)
//	err = kernel.Launch(queue, scale, kernel.Over(x.Size()), kernel.Read(x), kernel.ReadWrite(y), kernel.Scalar(float32(3)))
//
// # Order and lifetime
//
// A launch is submitted and not waited for. It starts after whatever its arrays wait for,
// and they wait for it from then on: reading on the host, copying, exporting and the next
// launch come after it, and memory that is released meanwhile is kept until it is complete.
// On an in-order queue, such as a default queue, it also comes after the earlier work of the
// queue. Arrays that launches share order them on all queues; but OpenCL drivers for CPUs
// have been seen to lose events among very many out-of-order submissions, so that in-order
// queues are the better choice there.
//
// Program and kernel may be closed while launches run. Both may be used from any goroutine,
// one kernel from several at once too. As everywhere, the elements are guarded by nobody:
// what runs on other queues or goroutines without a common array is not ordered.
//
// # Arguments
//
// [Read] and [ReadWrite] give the address of an array's element (0, …, 0). The memory must
// be USM of the queue's context: plain host memory is refused, also on devices that could
// reach it, because nothing would keep it until the launch is complete; copy it with
// ToDevice. The elements must lie densely, in C or in Fortran order, unless [Arg.Strided]
// says that the kernel is told the strides by other arguments. A read-only array goes
// through Read alone, and only to a parameter that points to const or constant memory where
// the driver tells so much.
//
// [Scalar] is a number, [Local] memory of each work-group, [Bytes] a vector or a structure.
//
// Before anything is submitted the number of arguments is checked, and each argument against
// its parameter, as far as the driver tells of it (OpenCL drivers do so for OpenCL C, less
// for SPIR-V): whether it is a pointer, local memory or a value, the size and sort of a
// number, and the element type of an array where OpenCL C has a type for it (signed and
// unsigned are one; complex numbers are their parts). What nobody tells is the driver's to
// refuse, without words.
//
// # Errors and misuse
//
// Errors are [*OpError], with the index of the argument that is wrong. A released array is a
// mistake in the program and panics with usmarray's UseError. On the host backend, which
// runs no kernels, everything is an error that is [errors.ErrUnsupported].
package kernel
