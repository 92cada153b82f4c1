package rest

import (
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/interop/inference/internal/region"
)

// systemMemory serves the extension for system shared memory.
func (x *exchange) systemMemory(in []string) error {
	name, what, ok := regionPath(in)
	if !ok {
		return errNoPath
	}
	regions := x.h.o.Engine.Regions()
	if what == "status" && regions == nil && name == "" {
		return x.get(func() error { x.json([]byte("[]")); return nil })
	}
	if regions == nil {
		return region.ErrNetwork
	}
	switch what {
	case "status":
		return x.get(func() error { return x.regionStatus(name) })
	case "register":
		return x.post(func() error { return x.register(name) })
	}
	return x.post(func() error {
		if err := x.noBody(); err != nil {
			return err
		}
		var err error
		if name == "" {
			err = regions.UnregisterAll(x.client())
		} else {
			err = regions.Unregister(x.client(), name)
		}
		if err == nil {
			x.ok()
		}
		return err
	})
}

// deviceMemory serves the extensions for memory of devices, of which there are no regions.
func (x *exchange) deviceMemory(extension string, in []string) error {
	name, what, ok := regionPath(in)
	switch {
	case !ok:
		return errNoPath
	case what == "status" && name == "":
		return x.get(func() error { x.json([]byte("[]")); return nil })
	case what == "unregister" && name == "":
		return x.post(func() error { x.ok(); return nil })
	}
	return unsupported("shared memory of devices (" + extension + ") is not served; use system shared memory")
}

// regionPath parses [region/NAME/]status, register or unregister. A name is not empty.
func regionPath(in []string) (name, what string, ok bool) {
	if len(in) == 3 && in[0] == "region" && in[1] != "" {
		name, in = in[1], in[2:]
	}
	if len(in) != 1 {
		return "", "", false
	}
	switch what = in[0]; what {
	case "status", "unregister":
		return name, what, true
	case "register":
		return name, what, name != ""
	}
	return "", "", false
}

// noBody checks that the request has no body, or an object without known members.
func (x *exchange) noBody() error {
	_, err := x.small(nil, func(r *reader, _ field, _ []byte) error { return r.skip() })
	return err
}

func (x *exchange) regionStatus(name string) error {
	type entry struct {
		Name     string `json:"name"`
		Key      string `json:"key"`
		Offset   uint64 `json:"offset"`
		ByteSize uint64 `json:"byte_size"`
	}
	infos, err := x.h.o.Engine.Regions().Status(x.client(), name)
	if err != nil {
		return err
	}
	list := make([]entry, 0, len(infos))
	for _, i := range infos {
		list = append(list, entry{i.Name, i.Key, i.Offset, i.Size})
	}
	return x.marshal(list)
}

var regionFields = map[string]field{"key": hasRegion, "offset": hasOffset, "byte_size": hasRegionSize}

func (x *exchange) register(name string) error {
	var key string
	var offset, size int64
	has, err := x.small(regionFields, func(r *reader, f field, member []byte) (err error) {
		switch f {
		case hasRegion:
			key, err = r.string()
		case hasOffset:
			offset, err = r.count(member)
		case hasRegionSize:
			size, err = r.count(member)
		default:
			err = r.skip()
		}
		return err
	})
	if err != nil {
		return err
	}
	if has&(hasRegion|hasRegionSize) != hasRegion|hasRegionSize {
		return oip.Errorf(oip.Invalid, `a region needs a "key" and a "byte_size"`)
	}
	if err := x.h.o.Engine.Regions().Register(x.client(), name, key, uint64(offset), uint64(size)); err != nil {
		return err
	}
	x.ok()
	return nil
}
