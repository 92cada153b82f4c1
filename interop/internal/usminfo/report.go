// Package usminfo reports the SYCL library, devices and Python that usmbridge finds on this machine. The
// program usminfo and `python -m usmbridge` print the report.
package usminfo

import (
	"encoding/json"
	"errors"
	"io"
	"runtime"

	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
)

// report is the whole report. --json prints its JSON form.
type report struct {
	Version   string     `json:"version"`
	Go        string     `json:"go"`
	System    string     `json:"system"` // GOOS/GOARCH
	SYCL      syclInfo   `json:"sycl"`
	Python    pythonInfo `json:"python"`
	Platforms []platform `json:"platforms"`
	Default   string     `json:"default_device"` // filter string
	Missing   []missing  `json:"missing"`
}

// syclInfo describes the library and the attempts to find it.
type syclInfo struct {
	Found           bool      `json:"found"`
	Path            string    `json:"path,omitempty"`
	Source          string    `json:"source,omitempty"`
	DPCTLVersion    string    `json:"dpctl_version,omitempty"`
	CompilerVersion string    `json:"compiler_version,omitempty"`
	OpenCLDrivers   string    `json:"opencl_drivers,omitempty"`
	CPUQueues       string    `json:"cpu_queues,omitempty"`
	Attempts        []attempt `json:"attempts"`
}

// pythonInfo describes the Python that python.Start would embed, or the one that runs the report.
type pythonInfo struct {
	Found      bool      `json:"found"`
	Version    string    `json:"version,omitempty"`
	Executable string    `json:"executable,omitempty"`
	Library    string    `json:"library,omitempty"`
	Prefix     string    `json:"prefix,omitempty"`
	Source     string    `json:"source,omitempty"`
	Attempts   []attempt `json:"attempts"`
}

// attempt is an attempt to load a library or a Python.
type attempt struct {
	Source string `json:"source"`
	Path   string `json:"path,omitempty"`
	Error  string `json:"error,omitempty"`
}

type platform struct {
	Name    string   `json:"name"`
	Vendor  string   `json:"vendor"`
	Version string   `json:"version"`
	Backend string   `json:"backend"`
	Devices []device `json:"devices"`
}

type device struct {
	FilterString  string   `json:"filter_string"`
	Name          string   `json:"name"`
	Vendor        string   `json:"vendor"`
	Driver        string   `json:"driver_version"`
	Type          string   `json:"device_type"`
	ComputeUnits  uint32   `json:"compute_units"`
	GlobalMemSize uint64   `json:"global_mem_size"`
	MaxAllocSize  uint64   `json:"max_alloc_size"`
	DLPack        *[2]int  `json:"dlpack_device"` // device type and id; null if DLPack has no id for it
	USMKinds      []string `json:"usm_kinds"`     // empty on the host backend, whose memory is not USM
	IsDefault     bool     `json:"is_default"`
}

// missing is a missing component, with the reason and the way to install it.
type missing struct {
	What string `json:"what"`
	Why  string `json:"why"`
	Get  string `json:"get"`
}

// Interpreter is the Python that a process runs in, for a report from inside it.
type Interpreter struct {
	Version    string // "3.12.1"
	Executable string
	Prefix     string
}

// Write writes the report as JSON or as text. open returns the Runtime to describe, which the caller
// owns. If inside is not nil, the report describes that Python, not the one that would be embedded.
func Write(w io.Writer, asJSON bool, open func() (*syclobj.Runtime, error), inside *Interpreter) error {
	r, err := gather(open, inside)
	if err != nil {
		return err
	}
	if !asJSON {
		return r.print(w)
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// gather collects the report. If USMBRIDGE_SYCL names a file that is not a library, the report has its
// error, as for a missing library.
func gather(open func() (*syclobj.Runtime, error), inside *Interpreter) (*report, error) {
	r := &report{
		Version: usmarray.Version, Go: runtime.Version(),
		System: runtime.GOOS + "/" + runtime.GOARCH, Missing: []missing{},
	}
	rt, explicit := open()
	if explicit != nil {
		var err error
		if rt, err = syclobj.Open(syclobj.HostOnly()); err != nil {
			return nil, err
		}
		defer rt.Close()
	}
	environment := "that VIRTUAL_ENV or python3 on PATH names"
	if inside != nil {
		environment = inside.Prefix
	}
	r.sycl(rt, explicit, environment)
	r.devices(rt)
	if inside != nil {
		r.Python = pythonInfo{Found: true, Version: inside.Version, Executable: inside.Executable, Prefix: inside.Prefix,
			Source: "this process", Attempts: []attempt{}}
	} else {
		r.python()
	}
	return r, nil
}

// sycl describes the SYCL library. environment names the environment in which it can be installed.
func (r *report) sycl(rt *syclobj.Runtime, explicit error, environment string) {
	attempts := rt.Attempts()
	why := rt.SYCLError()
	if explicit != nil {
		attempts, why = []syclobj.Attempt{{Source: syclobj.EnvLibrary, Err: explicit}}, explicit
	}
	r.SYCL.Attempts = []attempt{}
	for _, a := range attempts {
		r.SYCL.Attempts = append(r.SYCL.Attempts, attempt{a.Source, a.Path, text(a.Err)})
	}
	if lib := rt.Library(); lib != nil {
		r.SYCL.Found, r.SYCL.Path, r.SYCL.Source = true, lib.Path, lib.Source
		r.SYCL.DPCTLVersion, r.SYCL.CompilerVersion = lib.DPCTLVersion, lib.CompilerVersion
		r.SYCL.OpenCLDrivers, r.SYCL.CPUQueues = lib.OpenCLDrivers, lib.CPUQueues
		if len(rt.RootDevices()) == 0 {
			r.Missing = append(r.Missing, missing{
				"a SYCL device", "the SYCL library lists none; OpenCL drivers: " + lib.OpenCLDrivers,
				"pip install intel-opencl-rt (a CPU device), or the driver of your GPU",
			})
		}
		for _, d := range rt.RootDevices() {
			if _, err := d.DefaultQueue(); err != nil {
				r.Missing = append(r.Missing, missing{"a queue on " + d.FilterString(), text(err), "start the program again, or repair the driver of the device"})
			}
		}
		return
	}
	get := "pip install dpctl intel-opencl-rt, in the environment " + environment + "; or set " + syclobj.EnvLibrary
	if errors.Is(why, errors.ErrUnsupported) {
		get = "SYCL works on Linux, in programs built with cgo"
	}
	r.Missing = append(r.Missing, missing{"SYCL", text(why), get})
}

func (r *report) devices(rt *syclobj.Runtime) {
	fallback := rt.DefaultDevice()
	r.Default = fallback.FilterString()
	r.Platforms = []platform{}
	for _, p := range rt.Platforms() {
		info := p.Info()
		shown := platform{info.Name, info.Vendor, info.Version, info.Backend.String(), []device{}}
		for _, d := range p.Devices() {
			shown.Devices = append(shown.Devices, describe(d, d == fallback))
		}
		r.Platforms = append(r.Platforms, shown)
	}
}

// DLPack's types of the devices that a Runtime lists.
const (
	kDLCPU    = 1
	kDLOneAPI = 14
)

func describe(d *syclobj.Device, isDefault bool) device {
	info := d.Info()
	shown := device{
		FilterString: d.FilterString(), Name: info.Name, Vendor: info.Vendor, Driver: info.DriverVersion,
		Type: info.Type.String(), ComputeUnits: info.ComputeUnits, GlobalMemSize: info.GlobalMemSize,
		MaxAllocSize: info.MaxAllocSize, USMKinds: []string{}, IsDefault: isDefault,
	}
	if d.IsHost() {
		shown.DLPack = &[2]int{kDLCPU, 0}
		return shown
	}
	if id, err := d.DLPackID(); err == nil {
		shown.DLPack = &[2]int{kDLOneAPI, int(id)}
	}
	for _, kind := range []syclobj.USMKind{syclobj.USMDevice, syclobj.USMShared, syclobj.USMHost} {
		if d.Supports(kind) {
			shown.USMKinds = append(shown.USMKinds, kind.String())
		}
	}
	return shown
}

func (r *report) python() {
	env, attempts := python.Attempts()
	r.Python.Attempts = []attempt{}
	for _, a := range attempts {
		r.Python.Attempts = append(r.Python.Attempts, attempt{a.Source, a.Executable, text(a.Err)})
	}
	if env == nil {
		why := "no python3 was found"
		if n := len(attempts); n > 0 {
			why = text(attempts[n-1].Err)
		}
		r.Missing = append(r.Missing, missing{
			"Python", why,
			"install Python 3.11 or newer with its shared library (Debian, Ubuntu: apt install python3-venv libpython3-dev), or name one in " + python.EnvVar,
		})
		return
	}
	r.Python.Found, r.Python.Version, r.Python.Executable = true, env.Version.String(), env.Executable
	r.Python.Library, r.Python.Prefix, r.Python.Source = env.Library, env.Prefix, env.Source
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
