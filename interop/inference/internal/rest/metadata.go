package rest

import (
	"maps"
	"net/http"
	"slices"

	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
)

// health answers a probe. KServe's client reads the body.
func (x *exchange) health(check func() error, body string) error {
	x.probe = true
	if err := check(); err != nil {
		return err
	}
	x.send(http.StatusOK, []byte(body))
	return nil
}

func (x *exchange) modelReady(m *engine.Model) error {
	return x.health(m.Ready, `{"name":`+string(appendString(nil, m.Meta().Name))+`,"ready":true}`)
}

func (x *exchange) metadata(m *engine.Model) error { return x.marshal(m.Meta()) }

func (x *exchange) statistics(m *engine.Model) error {
	return x.marshal(engine.Statistics(m))
}

// small reads a small JSON object to a pointer to a struct. The body may be empty.
func (x *exchange) small(to any) error {
	b, err := x.open(maxSmall)
	if err != nil || b.length == 0 {
		return err
	}
	defer b.free()
	text, err := b.text()
	if err == nil {
		err = b.finish()
	}
	if err == nil && len(text) > 0 {
		err = decode(text, to)
	}
	return err
}

// index serves the index of the models.
func (x *exchange) index() error {
	var request struct {
		Ready bool `json:"ready"`
	}
	if err := x.small(&request); err != nil {
		return err
	}
	return x.marshal(x.h.o.Engine.Index(request.Ready))
}

func (x *exchange) load() error {
	var request struct {
		Parameters map[string]raw `json:"parameters"`
	}
	if err := x.small(&request); err != nil {
		return err
	}
	return x.done(x.h.o.Engine.Load(x.r.Context(), x.r.PathValue("model"), slices.Collect(maps.Keys(request.Parameters))))
}

func (x *exchange) unload() error {
	if err := x.small(&struct{}{}); err != nil {
		return err
	}
	return x.done(x.h.o.Engine.Unload(x.r.PathValue("model")))
}

func (x *exchange) regionStatus() error {
	list, err := x.h.o.Engine.Regions().Status(x.client(), x.r.PathValue("region"))
	if err != nil {
		return err
	}
	return x.marshal(list)
}

func (x *exchange) register() error {
	var request struct {
		Key    *string `json:"key"`
		Offset uint64  `json:"offset"`
		Size   *uint64 `json:"byte_size"`
	}
	if err := x.small(&request); err != nil {
		return err
	}
	if request.Key == nil || request.Size == nil {
		return oip.Errorf(oip.Invalid, `a region needs a "key" and a "byte_size"`)
	}
	return x.done(x.h.o.Engine.Regions().Register(x.client(), x.r.PathValue("region"), *request.Key, request.Offset, *request.Size))
}

func (x *exchange) unregister() error {
	if err := x.small(&struct{}{}); err != nil {
		return err
	}
	return x.done(x.h.o.Engine.Regions().Unregister(x.client(), x.r.PathValue("region")))
}
