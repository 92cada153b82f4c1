// Package models reads the files of models. Read reads the sources of a directory that other users cannot
// write to, Script makes one Python module of them and of the code that calls them, and Definitions
// converts the description that this module returns. The package runs no Python.
package models
