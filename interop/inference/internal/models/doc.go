// Package models reads the files of models and says what they are: Read takes the sources
// of a directory that nobody else may write to, Script makes one Python module of them and
// of what calls them, and Definitions reads what that module tells of them. It runs nothing.
package models
