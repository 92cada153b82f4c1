//go:build race

package pymodule_test

const raceEnabled = true
