package backend

import (
	"errors"
	"sync"

	"github.com/usmbridge/usmbridge/interop/pymodule"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// The SYCL runtime and Python exist once per process. The first backend starts them, and later ones use them.
var (
	openRuntime = sync.OnceValues(func() (*syclobj.Runtime, error) { return syclobj.Open() })
	startPython = sync.OnceValues(func() (*python.Interpreter, error) {
		rt, err := openRuntime()
		if err == nil {
			// Memory that models allocate outside of calls is in the default pools.
			err = pymodule.Register(pymodule.SetRuntime(rt))
		}
		if err != nil {
			return nil, err
		}
		return python.Start()
	})
)

// End ends Python and closes the SYCL runtime, after every backend is closed. It is the last call of
// a process.
func (b *Backend) End() (err error) {
	if b.python != nil {
		err = b.python.Close()
	}
	return errors.Join(err, memmgr.CloseDefaults(), b.runtime.Close())
}
