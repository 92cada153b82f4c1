// Package bootstrap carries the Python source that loads and calls models.
package bootstrap

import _ "embed"

// Source is the text of bootstrap.py, for models.Script.
//
//go:embed bootstrap.py
var Source string
