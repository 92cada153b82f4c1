package models

import (
	"cmp"
	"embed"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
)

// Bootstrap is the source of the Python module Module, which loads and calls models.
//
//go:embed bootstrap.py
var Bootstrap string

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

// Module is the name of the Python module. Functions of models with SERIAL are called in Serial, which is another name
// of the module.
const (
	Module = "usmbridge_serve"
	Serial = Module + "_serial"
)

// Functions of Module. Load and Unload get a text.
const (
	Load   = Module + ":load"   // gets a Job, and returns the argument of Definition
	Unload = Module + ":unload" // empties the slot with this number, and collects its memory
	Forget = "forget"           // empties all slots
)

// Job returns the argument of Load: a model, the number of its slot, and whether it imports its helper modules again. The
// directory is that of the file, except for built-in models. Paths go as bytes, because they need not be UTF-8.
func Job(s Source, slot int, fresh bool) (string, error) {
	directory := ""
	if filepath.IsAbs(s.File) {
		directory = filepath.Dir(s.File)
	}
	text, err := json.Marshal(map[string]any{"name": s.Name, "file": []byte(s.File), "text": s.Text, "directory": []byte(directory),
		"slot": slot, "fresh": fresh})
	return string(text), err
}

// Definition reads the result of Load, which is JSON. A model that cannot be called is a Broken definition.
func Definition(described string, s Source) (d engine.Definition) {
	if err := json.Unmarshal([]byte(described), &d); err != nil || d.Meta.Name != s.Name {
		return Broken(s, "it cannot be loaded", fmt.Sprintf("invalid description: %.100q", described))
	}
	if err := d.Check(); err != nil && d.Broken == "" {
		return Broken(s, err.Error(), "")
	}
	if d.Broken != "" {
		return Broken(s, d.Broken, d.Detail)
	}
	return d
}

// Broken returns the definition of a model that cannot be called: the reason for clients, and more about it for the log.
func Broken(s Source, reason, detail string) engine.Definition {
	return engine.Definition{Meta: oip.Model{Name: s.Name}, Broken: reason, Detail: s.File + ": " + cmp.Or(strings.TrimSpace(detail), reason)}
}
