package ending

/*
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct usmb_piece {
	void *at;
	uint64_t size;
};

struct usmb_owner {
	int64_t ended;
	int64_t pieces;
	struct usmb_piece piece[16];
};

struct usmb_schema {
	const char *format, *name, *metadata;
	int64_t flags, n_children;
	void *children, *dictionary;
	void (*release)(struct usmb_schema *);
	struct usmb_owner *owner;
};

struct usmb_array {
	int64_t length, null_count, offset, n_buffers, n_children;
	void *buffers, *children, *dictionary;
	void (*release)(struct usmb_array *);
	struct usmb_owner *owner;
};

static void usmb_end(struct usmb_owner *o) {
	o->ended++;
	for (int64_t i = 0; i < o->pieces; i++)
		memset(o->piece[i].at, 0xa5, o->piece[i].size);
}

static void usmb_end_schema(struct usmb_schema *s) {
	usmb_end(s->owner);
	s->release = NULL;
}

static void usmb_end_array(struct usmb_array *a) {
	usmb_end(a->owner);
	a->release = NULL;
}

static void *usmb_schema_release(void) { return (void *)usmb_end_schema; }
static void *usmb_array_release(void) { return (void *)usmb_end_array; }
*/
import "C"

import "unsafe"

// Owner is what the private_data of a struct points to, in memory that Go's collector
// doesn't know: how often it ended, and what is spoiled then.
type Owner struct {
	Ended  int64
	pieces int64
	piece  [16]piece
}

type piece struct {
	at   unsafe.Pointer
	size uint64
}

var _ [unsafe.Sizeof(Owner{})]byte = [unsafe.Sizeof(C.struct_usmb_owner{})]byte{}

// Own has the memory spoiled at the end.
func (o *Owner) Own(at unsafe.Pointer, size uintptr) {
	o.piece[o.pieces] = piece{at, uint64(size)}
	o.pieces++
}

// Schema is a release function of struct ArrowSchema.
func Schema() unsafe.Pointer { return C.usmb_schema_release() }

// Array is a release function of struct ArrowArray.
func Array() unsafe.Pointer { return C.usmb_array_release() }
