package models

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
)

//go:embed bootstrap.py
var bootstrap string

// Module returns the name of the Python module of a load, which are counted from 1.
func Module(load int) string { return fmt.Sprintf("usmbridge_serve_%d", load) }

// Functions of that module.
const (
	Describe = "describe" // returns the argument of Definitions
	WarmAll  = "warm_all" // warms all models
	Forget   = "forget"   // removes the models
)

// Script returns the source of the Python module of a load: bootstrap.py, which loads and calls models,
// with the models. directory is that of the models; "" for built-in ones.
func Script(load int, directory string, sources []Source) (string, error) {
	list := make([][4]string, len(sources))
	for i, s := range sources {
		list[i] = [4]string{s.Name, s.File, s.Text, s.Problem}
	}
	text, err := json.Marshal(list)
	if err != nil {
		return "", err
	}
	// A Go string in ASCII quotes is a Python string.
	return fmt.Sprintf("%s\n\nload(json.loads(%s), %s, \"usmbridge_models_%d\")\n",
		bootstrap, strconv.QuoteToASCII(string(text)), strconv.QuoteToASCII(directory), load), nil
}

// description is a model in the result of Describe.
type description struct {
	Error, Detail         string
	Inputs, Outputs       []oip.Tensor
	Bound, Serial, Shapes bool
	WritesAll             bool `json:"writes_all"`
}

// Definitions reads the result of Describe for the module of the sources. A model that cannot be called is a Broken
// definition. Errors: a description that is not of these sources.
func Definitions(described any, module string, sources []Source) ([]engine.Definition, error) {
	text, _ := described.(string)
	var list []description
	if err := json.Unmarshal([]byte(text), &list); err != nil || len(list) != len(sources) {
		return nil, fmt.Errorf("models: invalid description of %d models: %.100q", len(sources), text)
	}
	definitions := make([]engine.Definition, len(sources))
	for i, m := range list {
		name, at := sources[i].Name, fmt.Sprintf("%s:model_%d", module, i)
		d := engine.Definition{Function: at + ".infer", Bound: m.Bound, Serial: m.Serial, WritesAll: m.WritesAll,
			Meta: oip.Model{Name: name, Platform: "usmbridge_python", Inputs: m.Inputs, Outputs: m.Outputs}}
		if m.Shapes {
			d.Shapes = at + ".shapes"
		}
		if err := d.Check(); err != nil && m.Error == "" {
			m.Error = err.Error()
		}
		if m.Error != "" {
			d = engine.Definition{Broken: m.Error, Detail: sources[i].File + ": " + cmp.Or(strings.TrimSpace(m.Detail), m.Error), Meta: oip.Model{Name: name}}
		}
		definitions[i] = d
	}
	return definitions, nil
}
