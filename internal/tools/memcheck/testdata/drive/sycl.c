/* SYCL objects, places, spans and memory with the fake library, while one of its calls or one allocation of
 * the C parts fails. */
#include "place.h"
#include "drive.h"
#include "loader.h"
#include "objects.h"
#include "symbols.h"

#include <dlfcn.h>
#include <string.h>

static struct {
	long (*live)(int);
	long (*calls)(const char *);
	void (*fail)(const char *, long);
} fake;

/* The number of kinds of objects that the fake library counts (fake.h). */
enum { FAKE_SORTS = 11 };

static const char *const functions[] = {
#define X(ret, name, args) #name,
        USMB_DPCTL_FUNCTIONS(X)
#undef X
};
enum { FUNCTIONS = sizeof functions / sizeof functions[0] };

static int spans(void *ctx, void *queue, int32_t id, char *p, size_t size)
{
	usmb_place *place = NULL, *again = NULL;
	int err = usmb_sycl_dlpack_import(id, p, p + size, &place);

	if (err != USMB_SYCL_OK) return err;
	err = usmb_sycl_place_for(ctx, queue, p, p, &again);
	if (err == USMB_SYCL_OK) {
		CHECK(place == again && place->dl_id == id && place->dl_error == USMB_SYCL_OK);
		err = usmb_place_show(place, queue);
		CHECK(usmb_place_show(place, place->queue) == USMB_SYCL_OK);
		for (size_t n = 0; n < 40; n++) { /* the text fits, or is truncated */
			char *text = malloc(n > 0 ? n : 1);

			if (text == NULL) break; /* the armed failure */
			usmb_place_explain(place, text, n);
			CHECK(n == 0 || strlen(text) < n);
			free(text);
		}
		usmb_place_release(again);
	}
	usmb_place_release(place);
	/* Invalid arguments. */
	place = NULL;
	CHECK(usmb_sycl_dlpack_import(id, NULL, p, &place) == USMB_SYCL_ENULL);
	CHECK(usmb_sycl_dlpack_import(id, p + 1, p, &place) == USMB_SYCL_EARG);
	CHECK(usmb_sycl_dlpack_import(-1, p, p + 1, &place) == USMB_SYCL_EDEVICEID);
	CHECK(usmb_sycl_dlpack_import(99, p, p + 1, &place) == USMB_SYCL_EDEVICEID);
	CHECK(usmb_sycl_place_for(NULL, NULL, p, p + 1, &place) == USMB_SYCL_ENULL);
	CHECK(usmb_sycl_dlpack_import(id, p, p + (size_t)(1 << 30), &place) != USMB_SYCL_OK);
	CHECK(usmb_sycl_dlpack_import(id, &place, &place + 1, &place) != USMB_SYCL_OK);
	CHECK(place == NULL);
	return err;
}

static int work(void *queue, char *p, char *q, size_t size)
{
	void *first = NULL, *events[4] = {NULL, NULL, NULL, NULL};
	uint8_t pattern[16] = {1, 2, 3, 4, 5, 6, 7, 8}, told[4];
	int n = 0, err = usmb_sycl_memset(queue, p, 1, size, NULL, 0, &first);

	if (err != USMB_SYCL_OK) return err;
	for (size_t width = 1; width <= 16 && err == USMB_SYCL_OK; width *= 2)
		err = usmb_sycl_fill(queue, p, pattern, width, size / width, &first, 1, NULL);
	if (err == USMB_SYCL_OK) err = usmb_sycl_memcpy(queue, q, p, size, &first, 1, &events[n]);
	if (events[n] != NULL) n++;
	if (err == USMB_SYCL_OK) err = usmb_sycl_prefetch(queue, p, size, NULL, 0, &events[n]);
	if (events[n] != NULL) n++;
	if (err == USMB_SYCL_OK) err = usmb_sycl_barrier(queue, events, (size_t)n, &events[n]);
	if (events[n] != NULL) n++;
	if (err == USMB_SYCL_OK) err = usmb_sycl_wait_queues(&queue, 1);
	if (n > 0) (void)usmb_sycl_event_state(events[0]);
	usmb_sycl_events_done(events, (size_t)n, told);
	for (int i = 0; i < n; i++) {
		void *copy = usmb_sycl_event_copy(events[i]);

		if (usmb_sycl_wait_event(events[i]) == USMB_SYCL_OK) CHECK(usmb_sycl_event_done(NULL));
		usmb_sycl_event_delete(copy);
	}
	usmb_sycl_events_delete(events, (size_t)n);
	usmb_sycl_event_delete(first);
	return err;
}

static int memory(const usmb_root *root, int32_t id)
{
	static const int32_t kinds[] = {USMB_USM_DEVICE, USMB_USM_SHARED, USMB_USM_HOST};
	enum { SIZE = 4096 };
	void *queue = NULL, *p = NULL, *q = NULL;
	int err = usmb_sycl_queue_new(root->context, root->device, 1, 0, &queue);

	for (int i = 0; i < 3 && err == USMB_SYCL_OK; i++) {
		usmb_place *place = NULL;
		uint32_t can = usmb_sycl_queue_kinds(queue);

		p = q = NULL;
		err = usmb_sycl_place_new(queue, kinds[i], &place);
		if (err == USMB_SYCL_OK) err = usmb_sycl_alloc(queue, can, kinds[i], SIZE, 0, &p);
		if (err == USMB_SYCL_OK) err = usmb_sycl_alloc(queue, can, kinds[i], SIZE, 1024, &q);
		/* The runtime names the first device of the context for host memory. */
		if (err == USMB_SYCL_OK && (kinds[i] != USMB_USM_HOST || id != 1))
			err = spans(root->context, queue, id, p, SIZE);
		if (err == USMB_SYCL_OK) err = work(queue, p, q, SIZE);
		usmb_place_release(place);
		if (p != NULL) CHECK(usmb_sycl_free(root->context, p) == USMB_SYCL_OK);
		if (q != NULL) CHECK(usmb_sycl_free(root->context, q) == USMB_SYCL_OK);
	}
	usmb_sycl_queue_delete(queue);
	return err;
}

static int objects(const usmb_root *root)
{
	void *device = usmb_sycl_device_copy(root->device), *ctx = NULL, *tiles = NULL, *queue = NULL;
	usmb_device_info info;
	usmb_queue_info about;
	int err = device == NULL ? USMB_SYCL_EFAILED : usmb_context_new(&device, 1, &ctx);

	if (err == USMB_SYCL_OK) {
		usmb_device_describe(device, &info);
		usmb_device_info_free(&info);
		CHECK(!usmb_sycl_context_equal(ctx, root->context) && !usmb_sycl_context_equal(NULL, ctx));
		err = usmb_sycl_queue_new(ctx, device, 0, 1, &queue);
	}
	if (err == USMB_SYCL_OK) {
		err = usmb_queue_describe(queue, &about);
		if (err == USMB_SYCL_OK) {
			usmb_sycl_context_delete(about.context);
			usmb_sycl_device_delete(about.device);
		}
	}
	if (err == USMB_SYCL_OK && usmb_device_split(device, NULL, 0, 6, &tiles) == USMB_SYCL_OK) {
		size_t n = usmb_devices_len(tiles);
		void **all = malloc((n > 0 ? n : 1) * sizeof *all);

		CHECK(all != NULL || scarce_count() > 0);
		if (all == NULL) usmb_dp.DPCTLDeviceVector_Delete(tiles);
		for (size_t i = 0; all != NULL && i < n; i++) {
			if (i == 0) usmb_devices_take(tiles, all);
			usmb_sycl_device_delete(all[i]);
		}
		if (all != NULL && n == 0) usmb_devices_take(tiles, all);
		free(all);
	}
	usmb_sycl_queue_delete(queue);
	usmb_sycl_context_delete(ctx);
	usmb_sycl_device_delete(device);
	return err;
}

/* Uses everything, checks that no object is left, and returns the first error. */
static int script(void)
{
	int64_t ours[USMB_LIVE_SORTS];
	int err = usmb_device_table_open(), rc;
	const usmb_root *root;

	for (int32_t i = 0; err == USMB_SYCL_OK && (root = usmb_device_table_row(i)) != NULL; i++) {
		rc = objects(root);
		err = memory(root, i);
		if (err == USMB_SYCL_OK) err = rc;
	}
	usmb_device_table_close();
	usmb_sycl_live(ours);
	for (int i = 0; i < USMB_LIVE_SORTS; i++) CHECK(ours[i] == 0);
	for (int i = 0; i < FAKE_SORTS; i++) CHECK(fake.live(i) == 0);
	return err;
}

static void every_call_fails(long step)
{
	static long before[FUNCTIONS], calls[FUNCTIONS];
	long at = 0, failed = 0;

	for (int f = 0; f < FUNCTIONS; f++) before[f] = fake.calls(functions[f]);
	CHECK(script() == USMB_SYCL_OK);
	for (int f = 0; f < FUNCTIONS; f++) calls[f] = fake.calls(functions[f]) - before[f];
	for (int f = 0; f < FUNCTIONS; f++) {
		/* This function has no error, and blocks whose type is unknown are not freed. */
		if (strcmp(functions[f], "DPCTLUSM_GetPointerType") == 0) continue;
		for (long n = 1; n <= calls[f]; n++) {
			if (at++ % step != 0) continue;
			fake.fail(functions[f], n);
			failures++;
			failed += script() != USMB_SYCL_OK;
			fake.fail(functions[f], 0);
		}
	}
	CHECK(at > 400 && failed > 0);
	CHECK(script() == USMB_SYCL_OK);
}

static void every_allocation_fails(void)
{
	for (long n = 1, failed = 0;; n++) {
		scarce_arm(n);
		failed += script() != USMB_SYCL_OK;
		long made = scarce_count();
		scarce_arm(0);
		if (made >= n) continue;
		CHECK(failed > 5);
		break;
	}
	CHECK(script() == USMB_SYCL_OK);
}

void drive_sycl(const char *library, long step)
{
	char real[4096], why[1024] = "";
	void *lib, *queue = NULL;

	CHECK(usmb_device_table_open() == USMB_SYCL_ENOLIB && usmb_sycl_current_queue(0, &queue) == USMB_SYCL_ENOLIB);
	CHECK(usmb_load_open("/there/is/no/library.so", "", real, sizeof real, why, sizeof why) == USMB_LOAD_OPEN);
	CHECK(usmb_load_open(library, "", real, sizeof real, why, sizeof why) == USMB_LOAD_OK);
	lib = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
	CHECK(lib != NULL);
	*(void **)&fake.live = dlsym(lib, "fake_live");
	*(void **)&fake.calls = dlsym(lib, "fake_calls");
	*(void **)&fake.fail = dlsym(lib, "fake_fail");
	CHECK(fake.live != NULL && fake.calls != NULL && fake.fail != NULL);
	dlclose(lib);
	for (int code = -1; code <= USMB_SYCL_NERRORS; code++) CHECK(usmb_sycl_strerror(code)[0] != 0);
	every_call_fails(step);
	every_allocation_fails();
}
