package syclobj

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
)

// EnvLibrary is the environment variable with the path of libDPCTLSyclInterface.so, or "off".
const EnvLibrary = "USMBRIDGE_SYCL"

const libraryName = "libDPCTLSyclInterface.so"

// Library describes the loaded SYCL library. The Runtime owns it; do not modify it.
type Library struct {
	Path            string // the real file
	Source          string // the place where it was found, as in Attempt
	Adopted         bool   // the process had already loaded it
	DPCTLVersion    string // from the package's metadata; empty if unknown
	CompilerVersion string // of the DPC++ compiler that built it
	OpenCLDrivers   string // a description of the configuration that selects the OpenCL drivers, and of what can hide them
	earlier         string // see loadedBefore
	// How queues on Intel's OpenCL CPU device execute their work; empty without that device. That
	// driver's out-of-order queues hang and crash when several threads use them, so this package makes
	// later queues of the process in-order, unless the environment has USMBRIDGE_CPU_QUEUES=driver.
	// A queue still has the properties that were requested.
	CPUQueues string
}

// Attempt is one place where the library was searched, a value that owns nothing.
type Attempt struct {
	Source string // "already loaded", "option", "USMBRIDGE_SYCL", "VIRTUAL_ENV", "python3 on PATH", "loader"
	Path   string // the file, or the searched directory
	Err    error  // nil if this one was loaded
}

type options struct {
	path     string
	off      bool
	required bool
	backends []Backend
}

// Option is an option of Open and OpenContext.
type Option func(*options)

// WithLibrary loads this libDPCTLSyclInterface.so, or the one in this directory, and no other. Open fails
// if it cannot be loaded.
func WithLibrary(path string) Option { return func(o *options) { o.path = path } }

// HostOnly disables SYCL.
func HostOnly() Option { return func(o *options) { o.off = true } }

// RequireSYCL makes Open fail unless there is a SYCL device with a default queue; if backends are given, a
// device of one of them. Open also fails if it could not create a queue on the choice of the default selector.
func RequireSYCL(backends ...Backend) Option {
	return func(o *options) { o.required, o.backends = true, backends }
}

// Runtime gives access to the devices: the host backend, and SYCL if it was found. The caller of Open owns
// and closes it; the last Close of the process closes the objects that belong to Runtimes. Methods may be
// called from several goroutines.
type Runtime struct {
	table    *deviceTable // nil without SYCL
	host     *Device
	lib      *Library
	attempts []Attempt
	why      error
	closed   atomic.Bool
}

// Open is [OpenContext] without a context. The caller closes the Runtime.
func Open(opts ...Option) (*Runtime, error) {
	return open(context.Background(), "Open", opts)
}

// OpenContext finds and loads the SYCL library, and lists the devices. The caller closes the Runtime. If
// there is no library, or the library cannot list its devices or create a queue on any of them, the Runtime
// has the host backend only, and SYCLError returns the reason. OpenContext fails if an explicitly requested
// library cannot be used or a requirement is not met. The search order is:
//
//  1. An instance that the process has already loaded. Asking for a different file is then an error.
//  2. [WithLibrary], or the environment variable USMBRIDGE_SYCL: the path of the file or of its
//     directory (with a slash), a name for the dynamic loader, or "off".
//  3. The virtual environment in VIRTUAL_ENV.
//  4. The environment of the python3 on PATH. If it is not a virtual environment, python3 is run to
//     print its search path. If that takes more than 5 seconds, the search continues without it.
//  5. The dynamic loader's search path, without directories that depend on the working directory (an
//     empty or relative part of LD_LIBRARY_PATH).
//
// If ctx ends before the library is found, OpenContext returns an [*OpError] with the context's error.
// Loading the library and listing the devices cannot be interrupted. Files that would crash or block the
// process, such as a truncated library or a named pipe, are detected before loading and reported as an
// error.
//
// SYCL finds a pip-installed OpenCL CPU runtime (intel-opencl-rt) only if OCL_ICD_FILENAMES contains its
// libintelocl.so. If no OpenCL driver is configured by OCL_ICD_FILENAMES, OCL_ICD_VENDORS or
// /etc/OpenCL/vendors, and that file is in the directory of libsycl, OpenContext sets the variable for
// this process and its children.
//
// Drivers replace the process's handlers of SIGSEGV and other signals when devices are listed.
// OpenContext restores the former handlers, so that a nil dereference in Go remains a panic.
func OpenContext(ctx context.Context, opts ...Option) (*Runtime, error) {
	return open(ctx, "OpenContext", opts)
}

func open(ctx context.Context, op string, opts []Option) (*Runtime, error) {
	var o options
	for _, f := range opts {
		f(&o)
	}
	rt := &Runtime{host: hostDevice}
	explicit := o.path != ""
	if !o.off && !explicit {
		switch v := os.Getenv(EnvLibrary); v {
		case "":
		case "off":
			o.off = true
		default:
			explicit = true
		}
	}
	if o.off {
		rt.why = &libraryError{Path: libraryName, Reason: "SYCL is switched off", Advice: "open without HostOnly, and with USMBRIDGE_SYCL unset or a path"}
		rt.attempts = []Attempt{{Source: "off", Err: rt.why}}
	} else {
		rt.lib, rt.attempts, rt.why = loadLibrary(ctx, o.path)
		if err := ctx.Err(); err != nil && rt.lib == nil {
			return nil, &OpError{Op: op, Err: fmt.Errorf("the search for the SYCL library: %w", err)}
		}
	}
	if rt.lib != nil {
		t, err := shareTable()
		switch {
		case err == nil:
			rt.table = t
			if len(t.roots) == 0 && rt.lib.earlier != "" {
				lib := *rt.lib
				lib.OpenCLDrivers += "; " + lib.earlier
				rt.lib = &lib
			}
		case explicit || o.required:
			return nil, err
		default:
			rt.why = &libraryError{Path: rt.lib.Path, Version: rt.lib.DPCTLVersion, Reason: "its devices cannot be used", Err: err,
				Advice: "try again, repair the drivers, or set " + EnvLibrary + "=off"}
			rt.lib = nil
		}
	} else if explicit {
		return nil, rt.why
	}
	if err := rt.satisfies(o); err != nil {
		rt.Close()
		return nil, err
	}
	return rt, nil
}

func (rt *Runtime) satisfies(o options) error {
	if !o.required {
		return nil
	}
	if rt.table == nil {
		return &OpError{Op: "Open", Err: fmt.Errorf("SYCL is required: %w", rt.why)}
	}
	if rt.table.replaced != nil {
		return rt.table.replaced
	}
	var unusable error
	for _, d := range rt.table.roots {
		if len(o.backends) == 0 || slices.Contains(o.backends, d.info.Backend) {
			if d.queue != nil {
				return nil
			}
			unusable = opErr("Open", ErrFailed, "creating a queue on %s", d)
		}
	}
	if unusable != nil {
		return unusable
	}
	if len(rt.table.roots) == 0 {
		return opErr("Open", ErrNoDevice, "%s lists no device; for a CPU device run `pip install intel-opencl-rt` in the same environment (OpenCL drivers: %s)", rt.lib.Path, rt.lib.OpenCLDrivers)
	}
	return opErr("Open", ErrNoDevice, "a device of backend %v is required; there are: %s", o.backends, filterList(rt.table.roots))
}

// Close releases the Runtime. The last one of the process closes all root devices, default contexts and
// default queues. It may be called repeatedly.
func (rt *Runtime) Close() error {
	if rt != nil && !rt.closed.Swap(true) && rt.table != nil {
		unshareTable()
	}
	return nil
}

// HasSYCL reports whether a SYCL library is in use. The library may list no device.
func (rt *Runtime) HasSYCL() bool { return rt.table != nil }

// Library describes the SYCL library, nil without SYCL.
func (rt *Runtime) Library() *Library { return rt.lib }

// Attempts lists the places where the library was searched, in order.
func (rt *Runtime) Attempts() []Attempt { return rt.attempts }

// SYCLError returns the reason why there is no SYCL, nil with SYCL. It matches ErrNoSYCL, or
// errors.ErrUnsupported if this build or system cannot have SYCL.
func (rt *Runtime) SYCLError() error { return rt.why }

// Platforms lists the SYCL platforms with devices, then the host's.
func (rt *Runtime) Platforms() []*Platform {
	var all []*Platform
	if rt.table != nil {
		all = append(all, rt.table.platforms...)
	}
	return append(all, rt.host.platform)
}

// RootDevices lists the SYCL root devices in the runtime's order, which is the order of their DLPack ids.
func (rt *Runtime) RootDevices() []*Device {
	if rt.table == nil {
		return nil
	}
	return append([]*Device(nil), rt.table.roots...)
}

// Devices lists the SYCL root devices, then the host device.
func (rt *Runtime) Devices() []*Device { return append(rt.RootDevices(), rt.host) }

// HostQueue returns the queue of the host backend.
func (rt *Runtime) HostQueue() *Queue { return rt.host.queue }

// DefaultDevice returns the choice of SYCL's default selector (which ONEAPI_DEVICE_SELECTOR influences),
// or the host device if there is no SYCL device. If no queue could be created on that choice, it is the first
// device that has one, unless the Runtime was opened with [RequireSYCL].
func (rt *Runtime) DefaultDevice() *Device {
	if rt.table != nil && rt.table.fallback != nil {
		return rt.table.fallback
	}
	return rt.host
}

// DefaultQueue returns the default queue of the default device.
func (rt *Runtime) DefaultQueue() *Queue {
	if d := rt.DefaultDevice(); d.queue != nil {
		return d.queue
	}
	return rt.host.queue
}

// RootDevice returns the root device with this DLPack device id.
func (rt *Runtime) RootDevice(id int32) (*Device, error) {
	if err := rt.needSYCL("Runtime.RootDevice"); err != nil {
		return nil, err
	}
	if id < 0 || int(id) >= len(rt.table.roots) {
		return nil, opErr("Runtime.RootDevice", ErrDeviceID, "%d of %d", id, len(rt.table.roots))
	}
	return rt.table.roots[id], nil
}

// Device resolves a filter string as SYCL's filter selector defines it: "backend:type:number", where each
// part is optional. Several alternatives are separated by commas; the first that the SYCL runtime can
// satisfy is selected. Case does not matter. "host" alone selects the host device. The Runtime owns the
// device. Errors: ErrArgument for an invalid filter string, ErrNoDevice if nothing matches.
func (rt *Runtime) Device(filter string) (*Device, error) {
	if err := notNil("Runtime.Device", rt); err != nil {
		return nil, err
	}
	if rt.table != nil {
		if d, ok := rt.table.filters.Load(filter); ok && !rt.closed.Load() {
			return d.(*Device), nil
		}
	}
	parsed, err := parseFilter(filter)
	if err != nil {
		return nil, err
	}
	if parsed == HostFilter {
		return rt.host, nil
	}
	if err := rt.needSYCL("Runtime.Device"); err != nil {
		return nil, err
	}
	d, err := rt.table.selectDevice(parsed)
	if err != nil {
		return nil, err
	}
	rt.table.remember(filter, d)
	return d, nil
}

func (t *deviceTable) selectDevice(filter string) (*Device, error) {
	ref, code := deviceSelect(filter)
	if code != codeOK {
		return nil, opErr("Runtime.Device", ErrNoDevice, "nothing matches %q; there are: %s", filter, filterList(t.roots))
	}
	defer deleteRef(sortDevice, ref)
	if d := t.rootOf(ref); d != nil {
		return d, nil
	}
	if err := t.need("Runtime.Device"); err != nil {
		return nil, err // closed concurrently
	}
	return nil, opErr("Runtime.Device", ErrNoIndex, "%q", filter)
}

// needSYCL returns nil if the Runtime is open and has SYCL.
func (rt *Runtime) needSYCL(op string) error {
	if err := notNil(op, rt); err != nil {
		return err
	}
	if rt.closed.Load() {
		return &OpError{Op: op, Kind: ErrClosed}
	}
	if rt.table == nil {
		return &OpError{Op: op, Err: rt.why}
	}
	return nil
}

// copyForeign returns an own reference of the object of a foreign one.
func (rt *Runtime) copyForeign(op string, sort refSort, foreign ref) (ref, error) {
	if err := rt.needSYCL(op); err != nil {
		return nil, err
	}
	if foreign == nil {
		return nil, &OpError{Op: op, Kind: ErrNil}
	}
	own := copyRef(sort, foreign)
	if own == nil {
		return nil, &OpError{Op: op, Kind: ErrFailed}
	}
	return own, nil
}

func filterList(devices []*Device) string {
	if len(devices) == 0 {
		return "no SYCL devices"
	}
	text := ""
	for i, d := range devices {
		if i > 0 {
			text += ", "
		}
		text += d.filter
	}
	return text
}
