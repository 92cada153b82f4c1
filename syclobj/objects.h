/*
 * Creating and describing platforms, devices, contexts and queues for the Go side. Private to this
 * package; usmb_sycl.h declares the functions for other C code.
 */
#ifndef USMB_SYCL_OBJECTS_H
#define USMB_SYCL_OBJECTS_H

#include <stddef.h>
#include <stdint.h>

/* The texts belong to the library; usmb_device_info_free frees them. */
typedef struct usmb_device_info {
	const char *name, *vendor, *driver;
	uint64_t global_mem, max_alloc;
	uint32_t units, max_subdevices, kinds;
	int32_t backend, type; /* the library's bits */
	int32_t root;          /* index of the device or its root ancestor, or -1 */
} usmb_device_info;

typedef struct usmb_platform_info {
	const char *name, *vendor, *version;
	int32_t backend;
} usmb_platform_info;

typedef struct usmb_queue_info {
	void *context, *device; /* owned */
	uint64_t hash;
	uint32_t kinds;
	int32_t in_order, profiling;
} usmb_queue_info;

void usmb_device_describe(void *device, usmb_device_info *out);
void usmb_device_info_free(usmb_device_info *info);
/* Owned refs. */
void *usmb_device_platform(void *device);
void *usmb_device_default(void);
int usmb_device_select(const char *filter, void **out_device);
/*
 * Creates sub-devices. counts NULL and n > 0: equal parts of n units each; counts of n entries: one part
 * for each; n 0: by affinity domain. usmb_devices_take reads the vector.
 */
int usmb_device_split(void *device, size_t *counts, size_t n, int domain, void **out_vector);
size_t usmb_devices_len(void *vector);
/* Fills out with usmb_devices_len owned refs (NULL for one that failed) and deletes the vector. */
void usmb_devices_take(void *vector, void **out);

void usmb_platform_describe(void *platform, usmb_platform_info *out);
void usmb_platform_info_free(usmb_platform_info *info);
int usmb_platform_equal(void *a, void *b);
void usmb_platform_delete(void *platform);

int usmb_context_new(void **devices, size_t n, void **out_ctx);
int usmb_context_devices(void *ctx, void **out_vector);
uint64_t usmb_queue_hash(void *queue);
int usmb_queue_describe(void *queue, usmb_queue_info *out);
int usmb_event_profile(void *event, uint64_t out[3]);

/* Makes all later allocations and frees of USM take one lock, for drivers that do not support concurrent ones. */
void usmb_usm_alone(void);

/* Returns the version text of the DPC++ compiler; usmb_text_free frees it. */
const char *usmb_compiler_version(void);
void usmb_text_free(const char *text);

#endif
