package segment

import (
	"errors"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// overlaid makes the resource of USM that memory files can be laid over.
func overlaid(op string, q *syclobj.Queue, kind syclobj.USMKind) (memmgr.Resource, error) {
	return nil, opError(op, errors.ErrUnsupported, "%v memory on %s cannot be shared yet", kind, q.Device())
}
