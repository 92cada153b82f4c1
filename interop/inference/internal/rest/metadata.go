package rest

import (
	"encoding/json"

	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/interop/inference/internal/region"
)

// marshal responds with a value, encoded by encoding/json, for rare requests.
func (x *exchange) marshal(v any) error {
	b, err := json.Marshal(v)
	if err == nil {
		x.json(b)
	}
	return err
}

// health answers a probe. KServe's client reads the body.
func (x *exchange) health(check func() error, body string) error {
	x.probe = true
	if err := check(); err != nil {
		return err
	}
	x.json([]byte(body))
	return nil
}

func (x *exchange) modelReady(m *engine.Model) error {
	return x.health(m.Ready, `{"name":`+string(appendString(nil, m.Meta().Name))+`,"ready":true}`)
}

func (x *exchange) metadata(m *engine.Model) error { return x.marshal(m.Meta()) }

func (x *exchange) config(m *engine.Model) error { return x.marshal(m.Config()) }

func (x *exchange) modelStatistics(m *engine.Model) error {
	return x.statistics([]*engine.Model{m})
}

func (x *exchange) statistics(models []*engine.Model) error {
	list := make([]map[string]any, len(models))
	for i, m := range models {
		s := m.Stats()
		last := int64(0) // milliseconds since 1970
		if !s.Last.IsZero() {
			last = s.Last.UnixMilli()
		}
		list[i] = map[string]any{
			"name": s.Name, "version": s.Version, "last_inference": last, "inference_count": s.Inferences, "execution_count": s.Executions,
			"inference_stats": map[string]engine.Duration{"success": s.Success, "fail": s.Fail, "queue": s.Queue, "compute_input": s.ComputeInput,
				"compute_infer": s.ComputeInfer, "compute_output": s.ComputeOutput, "cache_hit": {}, "cache_miss": {}},
			"batch_stats": []any{},
		}
	}
	return x.marshal(map[string]any{"model_stats": list})
}

// maxSmall is the largest body of requests that carry no tensors.
const maxSmall = 64 << 10

// small reads a small JSON object to a pointer to a struct. The body may be empty.
func (x *exchange) small(to any) error {
	b, err := x.open(maxSmall)
	if err != nil || b.length == 0 {
		return err
	}
	tenant, err := x.tenant()
	if err != nil {
		return err
	}
	text, give, err := b.text(&x.h.gate, tenant)
	defer func() { give() }()
	if err == nil {
		err = b.finish()
	}
	if err == nil {
		_, err = decode(text, to)
	}
	return err
}

// index serves the index of the models.
func (x *exchange) index(_, _ string) error {
	type entry struct {
		Name    string `json:"name"`
		Version string `json:"version"`
		State   string `json:"state"`
		Reason  string `json:"reason"`
	}
	var request struct {
		Ready bool `json:"ready"`
	}
	if err := x.small(&request); err != nil {
		return err
	}
	list := []entry{}
	for _, m := range x.h.o.Engine.Models() {
		e := entry{Name: m.Meta().Name, Version: m.Meta().Versions[0], State: "READY"}
		if err := m.Ready(); err != nil {
			if request.Ready {
				continue
			}
			e.State, e.Reason = "UNAVAILABLE", oip.As(err).Message
		}
		list = append(list, e)
	}
	return x.marshal(list)
}

// load loads or unloads a model.
func (x *exchange) load(model string, load bool) error {
	control := x.h.o.Control
	if control == nil {
		return engine.ErrNoControl
	}
	if err := x.small(&struct{}{}); err != nil {
		return err
	}
	run := control.Unload
	if load {
		run = control.Load
	}
	if err := run(x.r.Context(), model); err != nil {
		return err
	}
	return x.ok("", "")
}

func (x *exchange) noRegions(_, _ string) error { return x.marshal([]any{}) }

func (x *exchange) regionStatus(name, _ string) error {
	type entry struct {
		Name   string `json:"name"`
		Key    string `json:"key"`
		Offset uint64 `json:"offset"`
		Size   uint64 `json:"byte_size"`
	}
	regions := x.h.o.Engine.Regions()
	if regions == nil {
		if name == "" {
			return x.noRegions("", "")
		}
		return region.ErrNetwork
	}
	infos, err := regions.Status(x.client(), name)
	if err != nil {
		return err
	}
	list := make([]entry, len(infos))
	for i := range infos {
		list[i] = entry(infos[i])
	}
	return x.marshal(list)
}

func (x *exchange) register(name, _ string) error {
	regions := x.h.o.Engine.Regions()
	if regions == nil {
		return region.ErrNetwork
	}
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
	if err := regions.Register(x.client(), name, *request.Key, request.Offset, *request.Size); err != nil {
		return err
	}
	return x.ok("", "")
}

func (x *exchange) unregister(name, _ string) error {
	regions := x.h.o.Engine.Regions()
	if regions == nil {
		return region.ErrNetwork
	}
	if err := x.small(&struct{}{}); err != nil {
		return err
	}
	if err := regions.Unregister(x.client(), name); err != nil {
		return err
	}
	return x.ok("", "")
}
