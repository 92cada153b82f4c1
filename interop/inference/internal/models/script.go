package models

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/usmbridge/usmbridge/interop/inference/internal/bootstrap"
	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
)

// Module returns the name of the Python module of a load, which are counted from 1.
func Module(load int) string { return fmt.Sprintf("usmbridge_serve_%d", load) }

// Functions of that module.
const (
	Describe = "describe" // returns the argument of Definitions
	Warm     = "warm"     // warms a model; returns the traceback, or None, of a first call on zeros
	WarmAll  = "warm_all" // warms all models, and prints these tracebacks
	Forget   = "forget"   // removes the models
)

// Script returns the source of the Python module of a load: bootstrap.py, which loads and calls models,
// with the models. directory is that of the models; "" for built-in ones.
func Script(load int, directory string, sources []Source) (string, error) {
	list := [][3]string{}
	for _, s := range sources {
		if s.Problem == "" {
			list = append(list, [3]string{s.Name, s.File, s.Text})
		}
	}
	text, err := json.Marshal(list)
	if err != nil {
		return "", err
	}
	// A Go string in ASCII quotes is a Python string.
	return fmt.Sprintf("%s\n\nload(json.loads(%s), %s, \"usmbridge_models_%d\")\n",
		bootstrap.Source, strconv.QuoteToASCII(string(text)), strconv.QuoteToASCII(directory), load), nil
}

// description is a model in the result of Describe.
type description struct {
	Name, Error, Detail   string
	Inputs, Outputs       []oip.Tensor
	Bound, Serial, Shapes bool
	WritesAll             bool `json:"writes_all"`
}

// Definitions reads the result of Describe for the module, which has the sources without a Problem. A model that
// cannot be called is a Broken definition. Errors: a description that is not of these sources.
func Definitions(described any, module string, sources []Source) ([]engine.Definition, error) {
	text, _ := described.(string)
	var list []json.RawMessage
	err := json.Unmarshal([]byte(text), &list)
	definitions, next := make([]engine.Definition, len(sources)), 0
	for i, s := range sources {
		d := engine.Definition{Broken: s.Problem}
		if s.Problem == "" && next < len(list) {
			d = definition(list[next], fmt.Sprintf("%s:model_%d", module, next), s.Name)
		}
		if s.Problem == "" {
			next++
		}
		if d.Broken != "" {
			d = engine.Definition{Broken: d.Broken, Detail: s.File + ": " + cmp.Or(d.Detail, d.Broken), Meta: oip.Model{Name: s.Name}}
		}
		definitions[i] = d
	}
	if err != nil || next != len(list) {
		return nil, fmt.Errorf("models: invalid description of %d models: %.100q", next, text)
	}
	return definitions, nil
}

// definition reads one description, of the model with a name at a Python object.
func definition(text []byte, at, name string) (d engine.Definition) {
	var m description
	switch err := json.Unmarshal(text, &m); {
	case err != nil:
		return engine.Definition{Broken: "its declaration is not valid", Detail: err.Error()}
	case m.Error != "":
		return engine.Definition{Broken: m.Error, Detail: strings.TrimSpace(m.Detail)}
	case m.Name != name:
		return engine.Definition{Broken: "its description is of another model", Detail: m.Name}
	}
	d = engine.Definition{Function: at + ".infer", Bound: m.Bound, Serial: m.Serial, WritesAll: m.WritesAll,
		Meta: oip.Model{Name: name, Versions: []string{"1"}, Platform: "usmbridge_python", Inputs: m.Inputs, Outputs: m.Outputs}}
	if m.Shapes {
		d.Shapes = at + ".shapes"
	}
	if err := d.Check(); err != nil {
		d.Broken = strings.TrimPrefix(err.Error(), "engine: model "+name+": ")
	}
	return d
}
