package models

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
)

// Module is the name under which Python knows the module of Script.
const Module = "usmbridge_service"

// Functions of that module, for executor.Runner.Call.
const (
	Describe = Module + ":describe" // what Definitions reads
	Warm     = Module + ":warm"     // warms the models that are named; see Troubles
	WarmAll  = Module + ":warm_all" // warms all, and prints the troubles
)

// Script is the source of a Python module that has the models: bootstrap is what loads and
// calls them.
func Script(bootstrap string, sources []Source) (string, error) {
	list := make([][3]string, len(sources))
	for i, s := range sources {
		list[i] = [3]string{s.Name, s.File, s.Text}
	}
	text, err := json.Marshal(list)
	if err != nil {
		return "", err
	}
	// What Go quotes in ASCII is a string to Python too.
	return bootstrap + "\nimport json\n\nload(json.loads(" + strconv.QuoteToASCII(string(text)) + "))\n", nil
}

// Definitions reads what Describe returned. Errors: each model that cannot be served, with
// its file and the reason.
func Definitions(described any, sources []Source) ([]engine.Definition, error) {
	list, ok := described.([]any)
	if !ok || len(list) != len(sources) {
		return nil, fmt.Errorf("models: %T came for a description of %d models", described, len(sources))
	}
	var definitions []engine.Definition
	var bad []string
	for i, v := range list {
		d, err := definition(v, sources[i])
		if err != nil {
			bad = append(bad, refuse(sources[i].File, "%v", err).Error())
			continue
		}
		definitions = append(definitions, d)
	}
	if len(bad) > 0 {
		return nil, fmt.Errorf("%w models:\n%s", ErrRefused, strings.Join(bad, "\n"))
	}
	return definitions, nil
}

func definition(v any, s Source) (d engine.Definition, err error) {
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
	at := Module + ":model_" + s.Name
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
			switch n := extent.(type) {
			case int:
				shape[i] = int64(n)
			case int64:
				shape[i] = n
			default:
				return nil, fmt.Errorf("%s: extent %v is too large", name, extent)
			}
		}
		out = append(out, oip.Tensor{Name: name, Datatype: datatype, Shape: shape})
	}
	return out, nil
}

// Troubles reads what Warm returned: for each model whose first call failed the traceback.
// A model need not like zeros, so this is for the log.
func Troubles(v any) map[string]string {
	m, _ := v.(map[string]any)
	out := map[string]string{}
	for name, text := range m {
		out[name] = fmt.Sprint(text)
	}
	return out
}
