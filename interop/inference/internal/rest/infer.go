package rest

import (
	"math"
	"slices"
	"time"

	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/interop/inference/internal/peercred"
)

// infer serves one inference, from the first byte of its body to the last of the response.
func (x *exchange) infer() error {
	if err := x.h.engine.Enter(); err != nil {
		return err
	}
	defer x.h.engine.Leave()
	b, err := x.open(x.h.limits.body)
	if err != nil {
		return err
	}
	request, err := x.h.engine.Begin(x.r.Context(), x.r.PathValue("model"), x.r.PathValue("version"))
	if err != nil {
		return err
	}
	defer request.End()
	b.until = request.Deadline()
	defer b.free()
	text, err := b.text()
	if err != nil {
		return err
	}
	var head header
	if err := head.parse(text); err != nil {
		return err
	}
	if t := head.Params.Timeout; t > 0 {
		request.SetTimeout(time.Duration(min(t, math.MaxInt64/1000)) * time.Microsecond)
		b.until = request.Deadline()
	}
	if request.Model().Definition().Request {
		all, err := head.Params.forModel()
		id := ""
		if err == nil && head.ID.text != nil {
			err = decode(head.ID.text, &id)
		}
		if err != nil {
			return err
		}
		request.Describe(id, all)
	}
	head.Params.all.text = nil // the text is freed before the response
	if err := head.ask(request, x.client()); err != nil {
		return err
	}
	if err := head.give(request, x.client(), b); err != nil {
		return err
	}
	if err := b.finish(); err != nil {
		return err
	}
	head.Inputs = nil // and the JSON with them
	b.free()

	results, err := request.Run()
	if err != nil {
		return err
	}
	x.reply(request, &head, results)
	return nil
}

// ask requests the outputs.
func (h *header) ask(request *engine.Request, from peercred.Client) error {
	for i := range h.Outputs {
		o := &h.Outputs[i]
		out, err := request.Output(o.Name)
		if err != nil {
			return err
		}
		if o.Params.Region != "" {
			if err := out.Region(from, o.Params.Region, o.Params.Offset, *o.Params.RegionSize); err != nil {
				return err
			}
		}
	}
	for i, t := range request.Model().Meta().Outputs {
		if len(h.Outputs) > 0 {
			i = slices.IndexFunc(h.Outputs, func(o output) bool { return o.Name == t.Name })
		}
		if i >= 0 && h.inJSON(i) && jsonless(t.Datatype) {
			return oip.Errorf(oip.Unsupported, `output %s: %s has no JSON form; request "binary_data"`, t.Name, t.Datatype)
		}
	}
	return nil
}

// give fills the inputs. Everything that can be checked is checked before a byte of them is read.
func (h *header) give(request *engine.Request, from peercred.Client, b *body) (err error) {
	sum := uint64(0) // bytes after the JSON
	for i := range h.Inputs {
		in := &h.Inputs[i]
		if in.tensor, err = request.Input(in.Name, in.Datatype, in.Shape); err != nil {
			return err
		}
		size := in.tensor.Size()
		if in.Params.Size != nil {
			if *in.Params.Size != size {
				return oip.Errorf(oip.Invalid, "input %s of %s %v has %d bytes, and binary_data_size is %d", in.Name, in.Datatype, in.Shape, size, *in.Params.Size)
			}
			if sum += size; sum > math.MaxInt64 {
				return oip.Errorf(oip.TooLarge, "the size of the inputs overflows")
			}
		}
		if in.Params.Region != "" { // before memory is reserved, for the other inputs
			if err := in.tensor.Region(from, in.Params.Region, in.Params.Offset, *in.Params.RegionSize); err != nil {
				return err
			}
		}
	}
	if n := b.afterJSON(); n >= 0 && uint64(n) != sum {
		return oip.Errorf(oip.Invalid, "the body has %d bytes after its JSON, and the inputs' binary_data_size are %d together; set %s to the length of the JSON", n, sum, headerLength)
	}
	for i := range h.Inputs {
		in := &h.Inputs[i]
		switch {
		case in.Params.Region != "":
		case in.Params.Size != nil:
			err = in.tensor.Fill(b.full)
		default:
			err = in.tensor.Fill(func(p []byte) error { return in.fill(p, in.tensor.Datatype()) })
		}
		if err != nil {
			return err
		}
	}
	return nil
}
