package models

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
)

// Module returns the name of the Python module of a load, which are counted from 1.
func Module(load int) string { return fmt.Sprintf("usmbridge_serve_%d", load) }

// Functions of that module.
const (
	Describe = "describe" // returns what Definitions reads
	Warm     = "warm"     // warms the named models; see Troubles
	WarmAll  = "warm_all" // warms all models, and prints the troubles
	Forget   = "forget"   // removes the models
)

// Script returns the source of the Python module of a load: bootstrap, which loads and calls models,
// with the models. directory is that of the models; "" for built-in ones.
func Script(bootstrap string, load int, directory string, sources []Source) (string, error) {
	list := make([][3]string, len(sources))
	for i, s := range sources {
		list[i] = [3]string{s.Name, s.File, s.Text}
	}
	text, err := json.Marshal(list)
	if err != nil {
		return "", err
	}
	// A Go string in ASCII quotes is a Python string.
	return fmt.Sprintf("%s\nimport json\n\nload(json.loads(%s), %s, \"usmbridge_models_%d\")\n",
		bootstrap, strconv.QuoteToASCII(string(text)), strconv.QuoteToASCII(directory), load), nil
}

// Definitions reads what Describe returned for the module. A model that cannot be called is a Broken
// definition. Errors: a description that is not of these sources.
func Definitions(described any, module string, sources []Source) ([]engine.Definition, error) {
	list, ok := described.([]any)
	if !ok || len(list) != len(sources) {
		return nil, fmt.Errorf("models: got %T for the description of %d models", described, len(sources))
	}
	definitions := make([]engine.Definition, len(sources))
	for i, v := range list {
		d, err := definition(v, module, sources[i])
		if err != nil {
			d = engine.Definition{Meta: oip.Model{Name: sources[i].Name}, Broken: refuse(sources[i].File, "%v", err).Error()}
		}
		definitions[i] = d
	}
	return definitions, nil
}

func definition(v any, module string, s Source) (d engine.Definition, err error) {
	fields, ok := v.(map[string]any)
	if !ok || fields["name"] != s.Name {
		return d, fmt.Errorf("its description is %T", v)
	}
	if why, _ := fields["error"].(string); why != "" {
		return d, fmt.Errorf("%s", strings.TrimSpace(why))
	}
	d.Meta = oip.Model{Name: s.Name, Versions: []string{"1"}, Platform: "usmbridge_python"}
	for what, to := range map[string]*[]oip.Tensor{"inputs": &d.Meta.Inputs, "outputs": &d.Meta.Outputs} {
		if *to, err = tensors(fields[what]); err != nil {
			return d, fmt.Errorf("%s: %w", what, err)
		}
	}
	at := module + ":model_" + s.Name
	d.Function = at + ".infer"
	d.Bound, _ = fields["bound"].(bool)
	d.Serial, _ = fields["serial"].(bool)
	d.WritesAll, _ = fields["writes_all"].(bool)
	if shapes, _ := fields["shapes"].(bool); shapes {
		d.Shapes = at + ".shapes"
	}
	return d, d.Check()
}

func tensors(v any) ([]oip.Tensor, error) {
	list, _ := v.([]any)
	var out []oip.Tensor
	for _, v := range list {
		t, _ := v.([]any)
		if len(t) != 3 {
			return nil, fmt.Errorf("a description is %v", v)
		}
		name, _ := t[0].(string)
		word, _ := t[1].(string)
		datatype, err := oip.Parse(word)
		if err != nil {
			return nil, err
		}
		extents, _ := t[2].([]any)
		shape := make([]int64, len(extents))
		for i, extent := range extents {
			n, ok := engine.Extent(extent)
			if !ok {
				return nil, fmt.Errorf("%s: extent %v is not an integer of 64 bits", name, extent)
			}
			shape[i] = n
		}
		out = append(out, oip.Tensor{Name: name, Datatype: datatype, Shape: shape})
	}
	return out, nil
}

// Troubles reads what Warm returned: the traceback of each model whose first call, on zeros, failed.
func Troubles(v any) map[string]string {
	m, _ := v.(map[string]any)
	out := map[string]string{}
	for name, text := range m {
		out[name] = fmt.Sprint(text)
	}
	return out
}
