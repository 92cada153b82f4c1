package rest

import (
	"encoding/json"

	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
)

// marshal responds with a value, encoded by encoding/json, for rare requests.
func (x *exchange) marshal(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	x.json(b)
	return nil
}

func (x *exchange) server() error { return x.marshal(x.h.o.Engine.Server()) }

// health answers a probe. KServe's client reads the body.
func (x *exchange) health(check func() error, body string) error {
	x.probe = true
	if err := check(); err != nil {
		return err
	}
	x.json([]byte(body))
	return nil
}

// The shapes of the statistics extension.
type (
	durationJSON struct {
		Count uint64 `json:"count"`
		NS    uint64 `json:"ns"`
	}
	inferenceJSON struct {
		Success       durationJSON `json:"success"`
		Fail          durationJSON `json:"fail"`
		Queue         durationJSON `json:"queue"`
		ComputeInput  durationJSON `json:"compute_input"`
		ComputeInfer  durationJSON `json:"compute_infer"`
		ComputeOutput durationJSON `json:"compute_output"`
		CacheHit      durationJSON `json:"cache_hit"`
		CacheMiss     durationJSON `json:"cache_miss"`
	}
	batchJSON struct {
		BatchSize     int          `json:"batch_size"`
		ComputeInput  durationJSON `json:"compute_input"`
		ComputeInfer  durationJSON `json:"compute_infer"`
		ComputeOutput durationJSON `json:"compute_output"`
	}
	statisticsJSON struct {
		Name           string        `json:"name"`
		Version        string        `json:"version"`
		LastInference  int64         `json:"last_inference"` // milliseconds since 1970
		InferenceCount uint64        `json:"inference_count"`
		ExecutionCount uint64        `json:"execution_count"`
		InferenceStats inferenceJSON `json:"inference_stats"`
		BatchStats     []batchJSON   `json:"batch_stats"`
	}
)

func (x *exchange) statistics(models []*engine.Model) error {
	list := make([]statisticsJSON, 0, len(models))
	for _, m := range models {
		s := m.Stats()
		one := statisticsJSON{Name: s.Name, Version: s.Version, InferenceCount: s.Inferences, ExecutionCount: s.Executions,
			InferenceStats: inferenceJSON{Success: durationJSON(s.Success), Fail: durationJSON(s.Fail), Queue: durationJSON(s.Queue),
				ComputeInput: durationJSON(s.ComputeInput), ComputeInfer: durationJSON(s.ComputeInfer), ComputeOutput: durationJSON(s.ComputeOutput)},
			BatchStats: []batchJSON{},
		}
		if !s.Last.IsZero() {
			one.LastInference = s.Last.UnixMilli()
		}
		list = append(list, one)
	}
	return x.marshal(map[string]any{"model_stats": list})
}

// repository serves the index of the models, and loads and unloads them.
func (x *exchange) repository(in []string) error {
	switch {
	case len(in) == 1 && in[0] == "index":
		return x.post(x.index)
	case len(in) == 3 && in[0] == "models" && (in[2] == "load" || in[2] == "unload"):
		return x.post(func() error { return x.loadModel(in[1], in[2] == "load") })
	}
	return errNoPath
}

// loadModel loads or unloads a model.
func (x *exchange) loadModel(model string, load bool) error {
	control := x.h.o.Control
	if control == nil {
		return unsupported("clients cannot load or unload models: start the server with -model-control")
	}
	if _, err := x.small(nil, func(r *reader, _ field, _ []byte) error { return r.skip() }); err != nil {
		return err
	}
	run := control.Unload
	if load {
		run = control.Load
	}
	if err := run(x.r.Context(), model); err != nil {
		return err
	}
	x.ok()
	return nil
}

// maxSmall is the largest body of requests that carry no tensors.
const maxSmall = 64 << 10

// small reads a small JSON object. Without a body it has no members.
func (x *exchange) small(known map[string]field, read func(r *reader, f field, name []byte) error) (has field, err error) {
	b, err := x.open(maxSmall)
	if err != nil || b.length == 0 {
		return 0, err
	}
	tenant, err := x.tenant()
	if err != nil {
		return 0, err
	}
	text, give, err := b.text(&x.h.gate, tenant)
	defer give()
	if err != nil {
		return 0, err
	}
	if err := b.finish(); err != nil {
		return 0, err
	}
	r := newReader(text)
	defer r.release()
	has, err = r.object(known, func(f field, name []byte) error { return read(r, f, name) })
	if err == nil {
		err = r.end()
	}
	return has, err
}

var indexFields = map[string]field{"ready": 1}

func (x *exchange) index() error {
	type entry struct {
		Name    string `json:"name"`
		Version string `json:"version"`
		State   string `json:"state"`
		Reason  string `json:"reason"`
	}
	readyOnly := false
	if _, err := x.small(indexFields, func(r *reader, f field, _ []byte) (err error) {
		if f == 0 {
			return r.skip()
		}
		readyOnly, err = r.boolean()
		return err
	}); err != nil {
		return err
	}
	list := []entry{}
	for _, m := range x.h.o.Engine.Models() {
		ready := m.Ready()
		for _, version := range m.Meta().Versions {
			switch {
			case ready == nil:
				list = append(list, entry{Name: m.Meta().Name, Version: version, State: "READY"})
			case !readyOnly:
				list = append(list, entry{Name: m.Meta().Name, Version: version, State: "UNAVAILABLE", Reason: oip.As(ready).Message})
			}
		}
	}
	return x.marshal(list)
}
