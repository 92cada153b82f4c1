package models

import (
	"cmp"
	"embed"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
)

//go:embed bootstrap.py
var bootstrap string

//go:embed builtin/*.py
var builtin embed.FS

// Builtin returns the models that are served by default, in the order of their names.
func Builtin() (sources []Source) {
	for _, name := range []string{"identity", "luminance", "sobel"} {
		text, _ := builtin.ReadFile("builtin/" + name + ".py") // it is in the program
		sources = append(sources, Source{Name: name, File: "<built-in " + name + ".py>", Text: string(text)})
	}
	return sources
}

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

// Definitions reads the result of Describe for the module of the sources, which is JSON. A model that cannot be called is
// a Broken definition. Errors: a description that is not of these sources.
func Definitions(described any, sources []Source) (list []engine.Definition, err error) {
	text, _ := described.(string)
	if err := json.Unmarshal([]byte(text), &list); err != nil || len(list) != len(sources) {
		return nil, fmt.Errorf("models: invalid description of %d models: %.100q", len(sources), text)
	}
	for i := range list {
		d := &list[i]
		if err := d.Check(); err != nil {
			d.Broken = err.Error()
		}
		if d.Broken != "" {
			d.Detail = sources[i].File + ": " + cmp.Or(strings.TrimSpace(d.Detail), d.Broken)
		}
	}
	return list, nil
}
