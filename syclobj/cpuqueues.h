/* The queues of Intel's OpenCL driver for CPUs. */
#ifndef USMB_SYCL_CPUQUEUES_H
#define USMB_SYCL_CPUQUEUES_H

/* How queues of that driver execute their commands. */
enum {
	USMB_CPU_QUEUES_ABSENT,   /* the driver is not loaded */
	USMB_CPU_QUEUES_IN_ORDER, /* all in-order */
	USMB_CPU_QUEUES_LATE,     /* in-order, except for queues from before the SYCL library was opened here */
	USMB_CPU_QUEUES_DRIVER,   /* as asked for: USMBRIDGE_CPU_QUEUES=driver */
	USMB_CPU_QUEUES_UNKNOWN   /* as asked for: the driver's table of functions has an unknown form */
};

/*
 * Makes the queues that SYCL creates from now on in-order, if SYCL has loaded the driver. late: other code
 * may have created queues before. Returns USMB_CPU_QUEUES_*, the same in each later call once the driver
 * is loaded.
 */
int usmb_cpu_queues_set_up(int late);

/* Returns 1 if all queues of the driver are in-order. */
int usmb_cpu_queues_in_order(void);

/* Returns 1 if waits for events must poll first, see cpuqueues.c. */
int usmb_cpu_queues_poll(void);

#endif
