package rest

import (
	"context"
	"net/http"

	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/interop/inference/internal/region"
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

func (x *exchange) config(m *engine.Model) error { return x.marshal(m.Config()) }

func (x *exchange) statisticsOf(m *engine.Model) error { return x.statistics([]*engine.Model{m}) }

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
	if err == nil {
		_, err = decode(text, to)
	}
	return err
}

// index serves the index of the models.
func (x *exchange) index() error {
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

// controlModel loads or unloads a model.
func (x *exchange) controlModel(run func(engine.Control, context.Context, string) error) error {
	control := x.h.o.Control
	if control == nil {
		return engine.ErrNoControl
	}
	if err := x.small(&struct{}{}); err != nil {
		return err
	}
	return x.done(run(control, x.r.Context(), x.r.PathValue("model")))
}

func (x *exchange) noRegions() error { return x.marshal([]any{}) }

func (x *exchange) regionStatus() error {
	name, regions := x.r.PathValue("region"), x.h.o.Engine.Regions()
	if regions == nil && name == "" {
		return x.noRegions()
	}
	if regions == nil {
		return region.ErrNetwork
	}
	list, err := regions.Status(x.client(), name)
	if err != nil {
		return err
	}
	return x.marshal(list)
}

func (x *exchange) register() error {
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
	return x.done(regions.Register(x.client(), x.r.PathValue("region"), *request.Key, request.Offset, *request.Size))
}

func (x *exchange) unregister() error {
	regions := x.h.o.Engine.Regions()
	if regions == nil {
		return region.ErrNetwork
	}
	if err := x.small(&struct{}{}); err != nil {
		return err
	}
	return x.done(regions.Unregister(x.client(), x.r.PathValue("region")))
}
