/*
 * Threads that use out-of-order queues of Intel's OpenCL driver for CPUs, without SYCL and Python: a
 * program for reports to the driver's authors. ../cpuqueues.c describes the fault.
 *
 *   cc -O1 clstress.c -o clstress -L DIRECTORY -lintelocl -lpthread     (or -lOpenCL)
 *   LD_LIBRARY_PATH=DIRECTORY ./clstress SECONDS THREADS QUEUES LAST
 *
 * QUEUES: out (one out-of-order queue), in (one in-order queue), outs or ins (one for each thread).
 * LAST: the last command of each round, for which the thread waits: kernel, barrier or marker.
 *
 * It prints the number of rounds twice a second. With "outs kernel" that number stops changing within
 * seconds: the threads wait in clWaitForEvents. With "out barrier" the process can end by SIGSEGV in
 * AddDependentOnAll. With "in" and "ins" it ends by itself after SECONDS. Seen with the driver of
 * intel-opencl-rt 2026.2.0 and of earlier releases.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The part of cl.h that is needed. */
typedef void *handle;
enum { DEVICE_CPU = 2, READ_WRITE = 1, QUEUE_PROPERTIES = 0x1093, OUT_OF_ORDER = 1 };
extern int32_t clGetPlatformIDs(uint32_t, handle *, uint32_t *);
extern int32_t clGetDeviceIDs(handle, uint64_t, uint32_t, handle *, uint32_t *);
extern handle clCreateContext(const intptr_t *, uint32_t, const handle *, void *, void *, int32_t *);
extern handle clCreateCommandQueueWithProperties(handle, handle, const uint64_t *, int32_t *);
extern handle clCreateProgramWithSource(handle, uint32_t, const char **, const size_t *, int32_t *);
extern int32_t clBuildProgram(handle, uint32_t, const handle *, const char *, void *, void *);
extern handle clCreateKernel(handle, const char *, int32_t *);
extern handle clCreateBuffer(handle, uint64_t, size_t, void *, int32_t *);
extern int32_t clSetKernelArg(handle, uint32_t, size_t, const void *);
extern int32_t clEnqueueNDRangeKernel(handle, handle, uint32_t, const size_t *, const size_t *, const size_t *,
                                      uint32_t, const handle *, handle *);
extern int32_t clEnqueueBarrierWithWaitList(handle, uint32_t, const handle *, handle *);
extern int32_t clEnqueueMarkerWithWaitList(handle, uint32_t, const handle *, handle *);
extern int32_t clWaitForEvents(uint32_t, const handle *);
extern int32_t clReleaseEvent(handle);

enum { ELEMENTS = 1000, MOST_THREADS = 64 };
static handle context, device, program, shared;
static int out_of_order, own_queues, last;
static atomic_long rounds;
static time_t end;

static void ok(int32_t code, const char *what)
{
	if (code == 0) return;
	fprintf(stderr, "%s: %d\n", what, code);
	_exit(3);
}

static handle new_queue(void)
{
	const uint64_t properties[] = {QUEUE_PROPERTIES, out_of_order ? OUT_OF_ORDER : 0, 0};
	int32_t err;
	handle queue = clCreateCommandQueueWithProperties(context, device, properties, &err);

	ok(err, "clCreateCommandQueueWithProperties");
	return queue;
}

static handle enqueue_last(handle queue, handle kernel)
{
	const size_t n = ELEMENTS;
	handle event = NULL;

	if (last == 'b')
		ok(clEnqueueBarrierWithWaitList(queue, 0, NULL, &event), "clEnqueueBarrierWithWaitList");
	else if (last == 'm')
		ok(clEnqueueMarkerWithWaitList(queue, 0, NULL, &event), "clEnqueueMarkerWithWaitList");
	else
		ok(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &n, NULL, 0, NULL, &event), "clEnqueueNDRangeKernel");
	return event;
}

static void *run(void *unused)
{
	handle queue = own_queues ? new_queue() : shared, kernel, buffer, event;
	const size_t n = ELEMENTS;
	const float one = 1;
	int32_t err;

	(void)unused;
	kernel = clCreateKernel(program, "f", &err);
	ok(err, "clCreateKernel");
	buffer = clCreateBuffer(context, READ_WRITE, ELEMENTS * sizeof one, NULL, &err);
	ok(err, "clCreateBuffer");
	ok(clSetKernelArg(kernel, 0, sizeof buffer, &buffer), "clSetKernelArg");
	ok(clSetKernelArg(kernel, 1, sizeof one, &one), "clSetKernelArg");
	while (time(NULL) < end) {
		for (int i = 0; i < 2; i++)
			ok(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &n, NULL, 0, NULL, NULL),
			   "clEnqueueNDRangeKernel");
		event = enqueue_last(queue, kernel);
		ok(clWaitForEvents(1, &event), "clWaitForEvents");
		ok(clReleaseEvent(event), "clReleaseEvent");
		rounds++;
	}
	return NULL;
}

int main(int argc, char **argv)
{
	const char *source = "kernel void f(global float *x, float y) { x[get_global_id(0)] += y; }";
	pthread_t threads[MOST_THREADS];
	handle platform;
	int32_t err;
	int n;

	if (argc != 5) return 2;
	n = atoi(argv[2]);
	if (n < 1 || n > MOST_THREADS) return 2;
	out_of_order = argv[3][0] == 'o';
	own_queues = argv[3][strlen(argv[3]) - 1] == 's';
	last = argv[4][0];
	ok(clGetPlatformIDs(1, &platform, NULL), "clGetPlatformIDs");
	ok(clGetDeviceIDs(platform, DEVICE_CPU, 1, &device, NULL), "clGetDeviceIDs");
	context = clCreateContext(NULL, 1, &device, NULL, NULL, &err);
	ok(err, "clCreateContext");
	program = clCreateProgramWithSource(context, 1, &source, NULL, &err);
	ok(err, "clCreateProgramWithSource");
	ok(clBuildProgram(program, 1, &device, "", NULL, NULL), "clBuildProgram");
	shared = new_queue();
	end = time(NULL) + atoi(argv[1]);
	for (int i = 0; i < n; i++) ok(pthread_create(&threads[i], NULL, run, NULL), "pthread_create");
	while (time(NULL) < end) {
		usleep(500000);
		printf("%ld rounds\n", (long)rounds);
		fflush(stdout);
	}
	for (int i = 0; i < n; i++) pthread_join(threads[i], NULL);
	return 0;
}
