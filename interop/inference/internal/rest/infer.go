package rest

import (
	"math"
	"time"

	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/interop/inference/internal/peercred"
)

// infer serves one inference, from the first byte of its body to the last of the response.
func (x *exchange) infer(name, version string) (err error) {
	defer func() { x.h.o.Traces.Failed(x.r.Context(), err) }()
	tenant, err := x.tenant()
	if err != nil {
		return err
	}
	b, err := x.open(x.h.o.MaxBody)
	if err != nil {
		return err
	}
	request, err := x.h.o.Engine.Begin(x.r.Context(), tenant, name, version)
	if err != nil {
		return err
	}
	defer request.End()
	b.endBy(request.Deadline())

	text, give, err := b.text(&x.h.gate, tenant)
	defer func() { give() }()
	if err != nil {
		return err
	}
	var head header
	if err := head.parse(text); err != nil {
		return err
	}
	if t := head.params.timeout; t > 0 {
		request.SetTimeout(time.Duration(min(t, math.MaxInt64/1000)) * time.Microsecond)
		b.endBy(request.Deadline())
	}
	if err := head.ask(request, x.client()); err != nil {
		return err
	}
	if err := head.give(request, x.client(), b); err != nil {
		return err
	}
	if err := b.finish(); err != nil {
		return err
	}
	head.inputs = nil // and the JSON with them
	give()

	results, err := request.Run()
	x.h.o.Traces.Ran(x.r.Context(), request)
	if err != nil {
		return err
	}
	return x.reply(request, &head, version, results)
}

// endBy ends the reading of the body at a time at the latest.
func (b *body) endBy(t time.Time) {
	if t.Before(b.until) {
		b.until = t
	}
}

// ask requests the outputs.
func (h *header) ask(request *engine.Request, from peercred.Client) error {
	meta := request.Model().Meta()
	for i := range h.outputs {
		o := &h.outputs[i]
		out, err := request.Output(o.name)
		if err != nil {
			return err
		}
		if o.params.has&hasRegion != 0 {
			if err := out.Region(from, o.params.region, uint64(o.params.offset), uint64(o.params.regionSize)); err != nil {
				return err
			}
		}
	}
	for _, t := range meta.Outputs {
		o, wanted := h.wanted(t.Name)
		if wanted && jsonless(t.Datatype) && !h.binary(o) && (o == nil || o.params.has&hasRegion == 0) {
			return oip.Errorf(oip.Unsupported, `output %s: %s has no JSON form; request "binary_data"`, t.Name, t.Datatype)
		}
	}
	return nil
}

// wanted returns the request for an output; nil and true if all outputs are requested.
func (h *header) wanted(name string) (*output, bool) {
	if len(h.outputs) == 0 {
		return nil, true
	}
	for i := range h.outputs {
		if h.outputs[i].name == name {
			return &h.outputs[i], true
		}
	}
	return nil, false
}

// binary reports whether an output is sent as binary data. nil means any output.
func (h *header) binary(o *output) bool {
	if o != nil && o.params.has&hasBinary != 0 {
		return o.params.binary
	}
	return h.params.binary
}

// give fills the inputs. Everything that can be checked is checked before a byte is read.
func (h *header) give(request *engine.Request, from peercred.Client, b *body) error {
	var few [4]*engine.Input
	inputs, sum := few[:0], uint64(0)
	for i := range h.inputs {
		in := &h.inputs[i]
		given, err := request.Input(in.name, in.datatype, in.shape)
		if err != nil {
			return err
		}
		if in.params.has&hasSize != 0 {
			if uint64(in.params.size) != given.Size() {
				return oip.Errorf(oip.Invalid, "input %s of %s %v has %d bytes, and binary_data_size is %d", in.name, in.datatype, in.shape, given.Size(), in.params.size)
			}
			if sum += given.Size(); sum > math.MaxInt64 {
				return oip.Errorf(oip.TooLarge, "the size of the inputs overflows")
			}
		}
		if in.params.has&hasRegion != 0 { // before memory is reserved, for the other inputs
			if err := given.Region(from, in.params.region, uint64(in.params.offset), uint64(in.params.regionSize)); err != nil {
				return err
			}
		}
		inputs = append(inputs, given)
	}
	if n := b.behind(); n >= 0 && uint64(n) != sum {
		return oip.Errorf(oip.Invalid, "the body has %d bytes behind its JSON, and the inputs' binary_data_size are %d together; %s tells where the JSON ends", n, sum, headerLength)
	}
	for i, given := range inputs {
		in := &h.inputs[i]
		var err error
		switch {
		case in.params.has&hasRegion != 0:
		case in.params.has&hasSize != 0:
			err = given.Fill(b.full)
		default:
			err = given.Fill(func(p []byte) error { return in.fill(p, given.Datatype(), h.special) })
		}
		if err != nil {
			return err
		}
	}
	return nil
}
