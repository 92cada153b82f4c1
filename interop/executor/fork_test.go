//go:build cgo && linux

package executor_test

import (
	"testing"

	"github.com/usmbridge/usmbridge/interop/executor"
	"github.com/usmbridge/usmbridge/interop/internal/forktest"
)

func TestForks(t *testing.T) {
	e, _ := open(t, executor.Config{Modules: []executor.Module{{Name: forktest.Module, Source: forktest.Source}}})
	forktest.Test(t, e)
}
