// Package kernel launches kernels, which package syclobj compiles from OpenCL C or SPIR-V, with arrays
// of package usmarray as arguments.
//
//	program, err := queue.BuildOpenCL(source, "")
//	scale, err := program.Kernel("scale") // kernel void scale(global const float *x, global float *y, float f)
//	err = kernel.Launch(queue, scale, kernel.Over(x.Size()), kernel.Read(x), kernel.ReadWrite(y), kernel.Scalar(float32(3)))
//
// # Order and lifetime
//
// [Launch] submits the kernel and does not wait for it. The kernel starts after the pending work on its
// arrays, and becomes pending work of all of them: reads on the host, copies, exports and later launches
// wait for it, and memory that is released meanwhile is kept until it completes. On an in-order queue,
// such as a default queue, it also starts after the earlier work of the queue. Launches that share
// arrays are ordered on all queues, and so are launches behind the work of other libraries on queues with
// which they have seen an array.
//
// Program and kernel may be closed while launches run. Both may be used from several goroutines, also
// one kernel at the same time. Element access is not synchronized: work on other queues or goroutines
// without a common array is not ordered.
//
// # Arguments
//
// [Read] and [ReadWrite] pass the address of an array's element (0, …, 0). The memory must be USM of the
// queue's context. Plain host memory is refused, also on devices that could access it, because nothing
// would keep it until the launch completes; copy it with ToDevice. The elements must be dense, in C or
// Fortran order, unless [Arg.Strided] declares that other arguments pass the strides. A read-only array
// is accepted by Read only, and, where the driver describes the parameter, only for a parameter that
// points to const or constant memory.
//
// [Scalar] passes a number, [Local] allocates memory for each work-group, and [Bytes] passes a vector or
// a structure.
//
// Before anything is submitted, the number of arguments is checked, and each argument is checked against
// its parameter as far as the driver describes it: whether it is a pointer, local memory or a value, the
// size and class of a number, and the element type of an array where OpenCL C has a corresponding type.
// Signed and unsigned integers are treated as equal; complex numbers are treated as their parts. OpenCL
// drivers describe the parameters of OpenCL C kernels, and less of SPIR-V kernels. Errors in undescribed
// parameters are detected by the driver, which gives no reason.
//
// # Errors and misuse
//
// Errors are [*OpError], with the index of the invalid argument. Use of a released array is a mistake in
// the program and panics with usmarray's UseError. The host backend runs no kernels: all functions
// return an error that matches [errors.ErrUnsupported].
package kernel
